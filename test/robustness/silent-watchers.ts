import { setTimeout as delay } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import {
	ConversationService,
	ConversationView,
	WatchConversationUpdatesRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { type Endpoints, ingestClient, rpcPath } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { postBytes } from "../support/raw-http.ts";
import { FRAME, frame, headerBlock, RawHttp2 } from "../support/raw-http2.ts";
import { framed } from "../support/raw-rpc.ts";
import { httpAddress, openSocket } from "../support/raw-socket.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import { watch } from "../support/watching.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";
import { quiet, Subject } from "./subject.ts";

/** Maximum resident memory of the service, in bytes. */
const MAX_MEMORY = 1024 ** 3;
/** Number of updates per silent watcher, and their size in bytes. Together they are far larger than socket buffers. */
const UPDATES = 5;
const UPDATE_BYTES = 20_000;
/** Number and size of the large updates. The watchers of whole records cannot all hold one of their own. */
const LARGE_UPDATES = 3;
const LARGE_UPDATE_BYTES = 15_000_000;
const WRITERS = 4;
/** Maximum time for the reading watcher to catch up, in milliseconds. */
const CATCH_UP_TIMEOUT = 60_000;

/** Watchers that do not read, together with writers and one watcher that reads. */
export const silentWatchers: Run = {
	name: "silent-watchers",
	about: "watchers of whole records, over all protocols, that read nothing; one beside them must get every update",
	counted: "watchers",
	long: 1_000,
	short: 50,
	async run(count, _random, report) {
		await using subject = await Subject.start(report);
		const { service } = subject;
		const load = async (): Promise<void> => {
			using watchers = await SilentWatchers.open(service, count);
			const reader = new Reader(service);
			await reader.reaches(0n, report);
			const acknowledged = [
				...(await write(service, count * UPDATES, UPDATE_BYTES)),
				...(await write(service, LARGE_UPDATES, LARGE_UPDATE_BYTES)),
			];
			await reader.reaches(acknowledged.at(-1) ?? 0n, report);
			const seen = await reader.stop();
			const given = new Set(seen);
			const missed = acknowledged.filter((sequence) => !given.has(sequence));
			report.expect(missed.length === 0, `the watcher that reads was not given ${missed.length} updates`);
			const ordered = seen.every((sequence, index) => index === 0 || sequence > (seen[index - 1] ?? 0n));
			report.expect(ordered, "the watcher that reads was given updates out of order");
			for (let index = 0; index < count; index++)
				report.answer("watchers that read nothing", index < watchers.open ? "open" : "closed");
		};
		await subject.amongOrdinary(() => subject.untilSteady(load, quiet(count, silentWatchers), MAX_MEMORY));
		await subject.expectSound();
	},
};

/** The watcher that reads. */
class Reader {
	readonly #seen: bigint[] = [];
	readonly #end = new AbortController();
	readonly #reading: Promise<void>;
	/** Last received sequence. Undefined before the watch has begun. */
	#cursor: bigint | undefined;
	#failure: unknown;

	constructor(service: Endpoints) {
		this.#reading = this.#read(service).catch((error: unknown) => {
			if (!this.#end.signal.aborted) this.#failure = error;
		});
	}

	async #read(service: Endpoints): Promise<void> {
		for await (const { content, sequence } of watch(service, KEY, {}, this.#end.signal)) {
			if (content.case === "update") this.#seen.push(sequence);
			this.#cursor = sequence;
		}
	}

	/** Waits until the watch has begun and has reached a sequence. */
	async reaches(sequence: bigint, report: Report): Promise<void> {
		const until = performance.now() + CATCH_UP_TIMEOUT;
		while (this.#cursor === undefined || this.#cursor < sequence) {
			if (this.#failure !== undefined) return report.breaks(`the watcher that reads failed: ${String(this.#failure)}`);
			if (performance.now() > until) return report.breaks(`the watcher that reads stands at ${this.#cursor}`);
			await delay(20);
		}
	}

	/** Ends the watch. Returns the sequences of the updates in the order of their arrival. */
	async stop(): Promise<readonly bigint[]> {
		this.#end.abort();
		await this.#reading;
		return this.#seen;
	}
}

/** Posts records of a size in bytes, a few concurrently. Returns their sequences in ascending order. */
async function write(service: Endpoints, count: number, bytes: number): Promise<bigint[]> {
	// Each call over Connect has a connection of its own. One HTTP/2 connection refuses several large bodies at a time.
	const client = ingestClient(service, "connect", KEY);
	const sequences: bigint[] = [];
	let left = count;
	const writer = async (): Promise<void> => {
		while (left > 0) {
			left -= 1;
			const json = record({ agent_state: { filler: "x".repeat(bytes) } });
			sequences.push((await client.ingestConversation(ingestRequest(json))).sequence);
		}
	};
	await Promise.all(Array.from({ length: WRITERS }, writer));
	return sequences.sort((a, b) => Number(a - b));
}

/** Watchers that do not read, each with its own connection, over all protocols in turn. */
class SilentWatchers {
	readonly #connections: readonly (Disposable & { readonly open: boolean })[];

	private constructor(connections: readonly (Disposable & { readonly open: boolean })[]) {
		this.#connections = connections;
	}

	static async open(service: Endpoints, count: number): Promise<SilentWatchers> {
		const transports = [overGrpc, overConnect, overGrpcWithoutWindow, overGrpcWeb, overConnectJson];
		const opened = Array.from({ length: count }, (_, index) => transports[index % transports.length]?.(service));
		const connections = await Promise.all(opened);
		return new SilentWatchers(connections.filter((connection) => connection !== undefined));
	}

	/** Number of connections that the server has not closed. */
	get open(): number {
		return this.#connections.filter(({ open }) => open).length;
	}

	[Symbol.dispose](): void {
		for (const connection of this.#connections) connection[Symbol.dispose]();
	}
}

const method = ConversationService.method.watchConversationUpdates;
const message = toBinary(
	WatchConversationUpdatesRequestSchema,
	create(WatchConversationUpdatesRequestSchema, { view: ConversationView.FULL }),
);

const jsonMessage = Buffer.from(JSON.stringify({ view: "CONVERSATION_VIEW_FULL" }));

async function callOver(service: Endpoints): Promise<RawHttp2> {
	const client = await RawHttp2.connect(service.grpc);
	const header = headerBlock({
		":method": "POST",
		":scheme": "http",
		":path": rpcPath(method),
		":authority": "x",
		"content-type": "application/grpc",
		te: "trailers",
		"x-access-token": KEY,
	});
	await client.write(Buffer.concat([frame(FRAME.headers, 0x4, 1, header), frame(FRAME.data, 0x1, 1, framed(message))]));
	return client;
}

/** Does not read from its socket. */
async function overGrpc(service: Endpoints): Promise<RawHttp2> {
	const client = await callOver(service);
	client.pause();
	return client;
}

/** Reads from its socket, but never sends a WINDOW_UPDATE after the first 64 KiB. */
const overGrpcWithoutWindow = callOver;

const overConnect = (service: Endpoints) => overHttp(service, "application/connect+proto");
const overGrpcWeb = (service: Endpoints) => overHttp(service, "application/grpc-web+proto");
const overConnectJson = (service: Endpoints) => overHttp(service, "application/connect+json", jsonMessage);

async function overHttp(
	service: Endpoints,
	type: string,
	sent = message,
): Promise<Disposable & { readonly open: boolean }> {
	const socket = openSocket(httpAddress(service)).pause();
	const bytes = postBytes(rpcPath(method), { "Content-Type": type, "X-Access-Token": KEY }, framed(sent));
	await new Promise<void>((resolve) => {
		socket.write(bytes, () => resolve());
	});
	return {
		get open() {
			return !socket.destroyed;
		},
		[Symbol.dispose]: () => socket.destroy(),
	};
}
