import { fromBinary } from "@bufbuild/protobuf";
import { WatchConversationUpdatesResponseSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { serve } from "../processes/parent.ts";
import { Connection, type StreamHandler } from "./frames.ts";
import { type WatchPlan, type WatchProgress, watchPlan } from "./watch-plan.ts";

/**
 * Many watchers in one process. It counts each message and checks its sequence number. From every fiftieth it also
 * reads the time of receipt.
 */

const WATCHERS_PER_CONNECTION = 50;
const SAMPLE_INTERVAL = 50;
const MAX_DELAYS = 500_000;
const PREFIX = 5;
/** Tags of the first fields of WatchConversationUpdatesResponse: the sequence, a varint, and the update, a message. */
const SEQUENCE_TAG = 0x08;
const UPDATE_TAG = 0x12;

class Watcher implements StreamHandler {
	received = 0;
	disordered = 0;
	reason: string | undefined;
	readonly #delays: number[];
	#sequence = 0;
	#rest: Buffer<ArrayBufferLike> = Buffer.alloc(0);

	constructor(delays: number[]) {
		this.#delays = delays;
	}

	data(chunk: Buffer): void {
		const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
		let at = 0;
		while (bytes.length - at >= PREFIX) {
			const end = at + PREFIX + bytes.readUInt32BE(at + 1);
			if (end > bytes.length) break;
			this.#message(bytes, at + PREFIX, end);
			at = end;
		}
		// A copy, because the received bytes are valid during this call only.
		this.#rest = Buffer.from(bytes.subarray(at));
	}

	end(reason: string): void {
		this.reason = reason;
	}

	#message(bytes: Buffer, start: number, end: number): void {
		if (bytes[start] !== SEQUENCE_TAG) return;
		let [sequence, scale, at] = [0, 1, start + 1];
		for (; at < end; at++) {
			const byte = bytes[at] ?? 0;
			sequence += (byte & 0x7f) * scale;
			scale *= 128;
			if (byte < 0x80) break;
		}
		if (bytes[at + 1] !== UPDATE_TAG) return;
		this.received += 1;
		if (sequence <= this.#sequence) this.disordered += 1;
		this.#sequence = sequence;
		if (this.received % SAMPLE_INTERVAL === 0 && this.#delays.length < MAX_DELAYS)
			this.#delays.push(delayOf(bytes.subarray(start, end)));
	}
}

function delayOf(message: Uint8Array): number {
	const { content } = fromBinary(WatchConversationUpdatesResponseSchema, message);
	if (content.case !== "update" || content.value.receivedAt === undefined) return Number.NaN;
	const { seconds, nanos } = content.value.receivedAt;
	return performance.timeOrigin + performance.now() - (Number(seconds) * 1000 + nanos / 1e6);
}

const delays: number[] = [];
const watchers: Watcher[] = [];

async function start(plan: Extract<WatchPlan, { kind: "start" }>): Promise<void> {
	const requests = Array.from({ length: plan.watchers }, (_, index) => plan.requests[index % plan.requests.length]);
	for (let first = 0; first < requests.length; first += WATCHERS_PER_CONNECTION) {
		const connection = await Connection.open(plan.port);
		for (const request of requests.slice(first, first + WATCHERS_PER_CONNECTION)) {
			if (request === undefined) continue;
			const watcher = new Watcher(delays);
			watchers.push(watcher);
			connection.call(plan.path, plan.key, request, watcher);
		}
	}
}

function progress(): WatchProgress {
	const ended = watchers.filter(({ reason }) => reason !== undefined);
	const { user, system } = process.cpuUsage();
	return {
		least: watchers.reduce((least, { received }) => Math.min(least, received), Number.MAX_SAFE_INTEGER),
		total: watchers.reduce((sum, { received }) => sum + received, 0),
		disordered: watchers.reduce((sum, { disordered }) => sum + disordered, 0),
		ended: ended.length,
		reason: ended[0]?.reason,
		delays,
		clientSeconds: (user + system) / 1e6,
	};
}

serve(watchPlan, async (plan) => {
	if (plan.kind === "start") await start(plan);
	if (plan.kind === "reset") delays.length = 0;
	return plan.kind === "progress" ? progress() : {};
});
