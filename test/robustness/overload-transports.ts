import { randomUUID } from "node:crypto";
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
/** Concurrent requests on an HTTP/2 connection: fewer than the listener allows. */
const STREAMS_PER_CONNECTION = 75;

const ID = randomUUID();
const SMALL = record({ id: ID, title: "x".repeat(1_800) });
const LARGE = record({
	id: ID,
	agent_state: { lines: Array.from({ length: LARGE_LINES }, (_, line) => ({ line, text: "x".repeat(70) })) },
});

/** Both transports, with records of 2 KB. */
export const WITH_SMALL_RECORDS: readonly ((service: Endpoints) => Transport)[] = [
	(service) => http("HTTP/1.1, 2 KB", service, SMALL),
	(service) => grpc("gRPC, 2 KB", service, SMALL),
];

/** Both transports, with records of 200 KB. */
export const WITH_LARGE_RECORDS: readonly ((service: Endpoints) => Transport)[] = [
	(service) => http("HTTP/1.1, 200 KB", service, LARGE),
	(service) => grpc("gRPC, 200 KB", service, LARGE),
];

function http(name: string, service: Endpoints, json: typeof SMALL): Transport {
	const body = ownRecords(Buffer.from(JSON.stringify(json)));
	const request = () => postBytes(WEBHOOK, { "X-Access-Token": KEY }, body());
	return { name, success: "200", request, lanes: (most) => new HttpLanes(httpAddress(service), most) };
}

function grpc(name: string, service: Endpoints, json: typeof SMALL): Transport {
	const headers = {
		":method": "POST",
		":path": rpcPath(ConversationIngestService.method.ingestConversation),
		"content-type": "application/grpc",
		te: "trailers",
		"x-access-token": KEY,
	};
	const answerOf = (answer: AnswerFields) => {
		const status = answer.get("grpc-status");
		return status === undefined ? undefined : codeName(Number(status) === 0 ? undefined : Number(status));
	};
	const lanes = (most: number) => {
		const connections = Math.ceil(most / STREAMS_PER_CONNECTION);
		const each = Math.ceil(most / connections);
		return new Http2Lanes(service.grpc, { headers, answerOf, connections, each });
	};
	const request = ownRecords(framed(toBinary(IngestConversationRequestSchema, ingestRequest(json))));
	return { name, success: "OK", request, lanes };
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
