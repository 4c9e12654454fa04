import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { type JsonObject, toBinary } from "@bufbuild/protobuf";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type Endpoints, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { GrpcLanes } from "../support/grpc-lanes.ts";
import { HttpLanes, type Lanes } from "../support/http-lanes.ts";
import { postBytes } from "../support/raw-http.ts";
import { framed } from "../support/raw-rpc.ts";
import { httpAddress } from "../support/raw-socket.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";
import { quiet, Subject } from "./subject.ts";

const MiB = 2 ** 20;
/** Most memory that the service may have: the limit in deploy/kubernetes.yaml. */
const MEMORY = 3 * 1024 * MiB;
/** Requests under way while the best rate is measured. */
const SANE = 32;
/** How many times the best rate is offered. */
const TIMES = 5;
/** Least share of the best rate that must be successes under too much load. */
const SHARE = 0.8;
/** Seconds of load from which the rate and the memory are judged. */
const JUDGED = 10;
/** Requests at a time; when all are waiting, no more can be offered. */
const AT_A_TIME = 3_000;
/** Milliseconds between two looks at how many requests are due. */
const TICK = 5;
/** Bytes of a record's free-form JSON: work for the service, of which the client sends a packed form that is small. */
const RECORD_BYTES = 200_000;

/** Records are offered at five times the rate at which the service can take them. */
export const overload: Run = {
	name: "overload",
	about: "five times the best rate of records; successes must stay at 0.8 of it, and reads and the health must answer",
	counted: "seconds of each load",
	long: 20,
	short: 1,
	async run(count, _random, report) {
		// In a few seconds rates and memory say little.
		const judged = count >= JUDGED;
		for (const over of [overHttp, overGrpc]) {
			// A service of its own, which has nothing left to do of another load.
			await using subject = await Subject.start(report);
			const transport = over(subject.service);
			// The engine compiles, and caches fill.
			await atOnce(transport, count);
			const best = await atOnce(transport, count);
			report.figure(`${transport.name}: best rate ${Math.round(best)} records a second, ${SANE} at a time`);
			const load = async (): Promise<void> => {
				const { offered, successes } = await offer(transport, best * TIMES, count, report);
				const share = (successes / best).toFixed(2);
				report.figure(
					`${transport.name}: ${(offered / best).toFixed(1)} times that offered: ${Math.round(successes)} successes a second, ${share} of the best rate`,
				);
				report.expect(
					!judged || successes >= best * SHARE,
					`successes over ${transport.name} fell to ${share} of the best rate`,
				);
			};
			await subject.amongOrdinary(() => subject.twice(load, quiet(count, overload), MEMORY, judged), "reads");
			await subject.expectSound();
		}
	},
};

/** A way to send records. */
interface Transport {
	readonly name: string;
	/** What a success is answered with. */
	readonly success: string;
	/** Makes a request with a record of its own. */
	readonly request: () => Buffer;
	/** @param most most requests at a time */
	readonly lanes: (most: number) => Lanes;
}

function largeRecord(id: string): JsonObject {
	const lines = Array.from({ length: RECORD_BYTES / 100 }, (_, index) => ({ line: index, text: "x".repeat(70) }));
	return record({ id, agent_state: { lines } });
}

// A record is packed once. What comes before its rest, up to the id, is packed by itself for each request, because gzip
// data may be a sequence of members (RFC 1952, section 2.2).
const packed = (start: Uint8Array, rest: Uint8Array) => Buffer.concat([gzipSync(start, { level: 0 }), rest]);

function overHttp(service: Endpoints): Transport {
	const { id: _, ...members } = largeRecord(randomUUID());
	const rest = gzipSync(JSON.stringify(members).slice(1));
	return {
		name: "HTTP",
		success: "200",
		request: () => {
			const body = packed(Buffer.from(`{"id":"${randomUUID()}",`), rest);
			return postBytes(WEBHOOK, { "Content-Encoding": "gzip", "X-Access-Token": KEY }, body);
		},
		lanes: (most) => new HttpLanes(httpAddress(service), most),
	};
}

function overGrpc({ grpc }: Endpoints): Transport {
	const id = randomUUID();
	const message = Buffer.from(toBinary(IngestConversationRequestSchema, ingestRequest(largeRecord(id))));
	const place = message.indexOf(id);
	const rest = gzipSync(message.subarray(place + id.length));
	const fields = { "grpc-encoding": "gzip", "x-access-token": KEY };
	return {
		name: "gRPC",
		success: "OK",
		request: () => framed(packed(Buffer.concat([message.subarray(0, place), Buffer.from(randomUUID())]), rest), 1),
		lanes: (most) => new GrpcLanes(grpc, ConversationIngestService.method.ingestConversation, fields, most),
	};
}

/** Successes a second with as many requests under way as a sane client has. */
async function atOnce({ lanes: open, request, success }: Transport, seconds: number): Promise<number> {
	const lanes = open(SANE);
	const start = performance.now();
	const until = start + seconds * 1000;
	let successes = 0;
	const lane = async (): Promise<void> => {
		while (performance.now() < until) {
			const answer = await lanes.send(request());
			if (answer !== success) throw new Error(`a record was answered with ${answer}`);
			successes += 1;
		}
	};
	await Promise.all(Array.from({ length: SANE }, lane)).finally(() => lanes.close());
	return (successes * 1000) / (performance.now() - start);
}

/** Offers requests at a rate, whatever the answers are; gives what was offered and successes, a second. */
async function offer(transport: Transport, rate: number, seconds: number, report: Report) {
	const { name, success, request } = transport;
	const lanes = transport.lanes(AT_A_TIME);
	const start = performance.now();
	const waits: number[] = [];
	let offered = 0;
	let successes = 0;
	let over = false;
	const sent: Promise<void>[] = [];
	const settle = async (answer: Promise<string>): Promise<void> => {
		const began = performance.now();
		const given = await answer;
		report.answer(`records over ${name}`, given, { refusable: true });
		if (given !== success || over) return;
		successes += 1;
		waits.push(performance.now() - began);
	};
	for (;;) {
		const elapsed = (performance.now() - start) / 1000;
		if (elapsed >= seconds) break;
		for (let due = elapsed * rate - offered; due >= 1; due--) {
			const answer = lanes.send(request());
			if (answer === undefined) break;
			offered += 1;
			sent.push(settle(answer));
		}
		await delay(TICK);
	}
	over = true;
	const waiting = lanes.waiting;
	lanes.close();
	await Promise.all(sent);
	waits.sort((a, b) => a - b);
	const median = Math.round(waits[Math.floor(waits.length / 2)] ?? 0);
	report.figure(`median wait of a success ${median} ms, ${waiting} without an answer at the end`);
	return { offered: offered / seconds, successes: successes / seconds };
}
