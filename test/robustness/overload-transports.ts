import { randomUUID } from "node:crypto";
import { crc32, gzipSync } from "node:zlib";
import { toBinary } from "@bufbuild/protobuf";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type Endpoints, rpcPath, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { HttpLanes, type Lanes } from "../support/http-lanes.ts";
import { type AnswerFields, Http2Lanes } from "../support/http2-lanes.ts";
import { postBytes } from "../support/raw-http.ts";
import { codeName, framed } from "../support/raw-rpc.ts";
import { httpAddress } from "../support/raw-socket.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";

/** A way to send records of one size. */
export interface Transport {
	readonly name: string;
	/** Status or code of a success. */
	readonly success: string;
	/** Returns a new request, whose record has its own id. */
	readonly request: () => Uint8Array;
	/** @param most maximum number of concurrent requests */
	readonly lanes: (most: number) => Lanes;
}

/** Lines of a large record's free-form JSON, of 100 bytes each. */
const LARGE_LINES = 2_000;
/** Concurrent requests on an HTTP/2 connection: fewer than either listener allows. */
const STREAMS_PER_CONNECTION = 75;

const ID = randomUUID();
const SMALL = record({ id: ID, title: "x".repeat(1_800) });
const LARGE = record({
	id: ID,
	agent_state: { lines: Array.from({ length: LARGE_LINES }, (_, line) => ({ line, text: "x".repeat(70) })) },
});

/** Every transport, with records of 2 KB. */
export const WITH_SMALL_RECORDS: readonly ((service: Endpoints) => Transport)[] = [
	(service) => http1("HTTP/1.1, 2 KB", service, {}, ownRecords(jsonOf(SMALL))),
	(service) => http2("HTTP/2, 2 KB", service, {}, ownRecords(jsonOf(SMALL))),
	(service) => grpc("gRPC, 2 KB", service, {}, ownRecords(framed(messageOf(SMALL)))),
];

/** Every transport, with records of 200 KB. They are sent compressed, in a way that costs the sender little. */
export const WITH_LARGE_RECORDS: readonly ((service: Endpoints) => Transport)[] = [
	(service) => http1("HTTP/1.1, 200 KB", service, { "content-encoding": "gzip" }, compressedRecords(jsonOf(LARGE))),
	(service) => http2("HTTP/2, 200 KB", service, { "content-encoding": "gzip" }, compressedRecords(jsonOf(LARGE))),
	(service) => {
		const message = compressedRecords(messageOf(LARGE));
		return grpc("gRPC, 200 KB", service, { "grpc-encoding": "gzip" }, () => framed(message(), 1));
	},
];

type Fields = Readonly<Record<string, string>>;

const POST = { ":method": "POST", "x-access-token": KEY };

function http1(name: string, service: Endpoints, fields: Fields, body: () => Uint8Array): Transport {
	const given = { ...fields, "X-Access-Token": KEY };
	const request = () => postBytes(WEBHOOK, given, body());
	return { name, success: "200", request, lanes: (most) => new HttpLanes(httpAddress(service), most) };
}

function http2(name: string, service: Endpoints, fields: Fields, request: () => Uint8Array): Transport {
	const headers = { ...POST, ":path": WEBHOOK, "content-type": "application/json", ...fields };
	const answerOf = (answer: AnswerFields) => answer.get(":status")?.toString();
	return {
		name,
		success: "200",
		request,
		lanes: (most) => new Http2Lanes(httpAddress(service), { headers, answerOf, ...connectionsFor(most) }),
	};
}

function grpc(name: string, service: Endpoints, fields: Fields, request: () => Uint8Array): Transport {
	const path = rpcPath(ConversationIngestService.method.ingestConversation);
	const headers = { ...POST, ":path": path, "content-type": "application/grpc", te: "trailers", ...fields };
	const answerOf = (answer: AnswerFields) => {
		const status = answer.get("grpc-status");
		return status === undefined ? undefined : codeName(Number(status) === 0 ? undefined : Number(status));
	};
	return {
		name,
		success: "OK",
		request,
		lanes: (most) => new Http2Lanes(service.grpc, { headers, answerOf, ...connectionsFor(most) }),
	};
}

/** Returns a number of connections with at least `most` lanes. */
function connectionsFor(most: number) {
	const connections = Math.ceil(most / STREAMS_PER_CONNECTION);
	return { connections, each: Math.ceil(most / connections) };
}

function jsonOf(json: typeof SMALL): Buffer {
	return Buffer.from(JSON.stringify(json));
}

function messageOf(json: typeof SMALL): Buffer {
	return Buffer.from(toBinary(IngestConversationRequestSchema, ingestRequest(json)));
}

/** Returns a function that copies a record and gives each copy its own id. */
function ownRecords(bytes: Buffer): () => Buffer {
	const place = bytes.indexOf(ID);
	return () => {
		const own = Buffer.from(bytes);
		own.write(randomUUID(), place);
		return own;
	};
}

/**
 * Returns a function that makes compressed copies of a record, each with its own id. The part after the id is
 * compressed only once: gzip data may be a sequence of members (RFC 1952, section 2.2).
 */
function compressedRecords(bytes: Buffer): () => Buffer {
	const end = bytes.indexOf(ID) + ID.length;
	const start = ownRecords(bytes.subarray(0, end));
	const rest = gzipSync(bytes.subarray(end));
	return () => Buffer.concat([gzipMember(start()), rest]);
}

/** Returns a gzip member with one uncompressed block (RFC 1951, section 3.2.4), which must be smaller than 64 KiB. */
function gzipMember(bytes: Buffer): Buffer {
	const head = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1, 0, 0, 0, 0]);
	head.writeUInt16LE(bytes.length, 11);
	head.writeUInt16LE(0xffff - bytes.length, 13);
	const tail = Buffer.alloc(8);
	tail.writeUInt32LE(crc32(bytes), 0);
	tail.writeUInt32LE(bytes.length, 4);
	return Buffer.concat([head, bytes, tail]);
}
