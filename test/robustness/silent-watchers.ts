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

/** Most memory that the service may have meanwhile, in bytes. */
const MEMORY = 1024 ** 3;
/** Updates for each watcher that does not read, and their size in bytes: far more than sockets hold. */
const UPDATES = 5;
const UPDATE_BYTES = 20_000;
const WRITERS = 4;
/** How long the watcher that reads may take to catch up, in milliseconds. */
const CATCH_UP = 60_000;

/** Watchers that do not read, among writers and one who does. */
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
			const acknowledged = await write(service, count * UPDATES);
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
		await subject.amongOrdinary(() => subject.untilSteady(load, quiet(count, silentWatchers), MEMORY));
		await subject.expectSound();
	},
};

/** A watcher that reads. */
class Reader {
	readonly #seen: bigint[] = [];
	readonly #end = new AbortController();
	readonly #reading: Promise<void>;
	/** Where the watch stands; undefined before it has begun. */
	#cursor: bigint | undefined;
	#failure: unknown;

	constructor(service: Endpoints) {
		this.#reading = this.#read(service).catch((error: unknown) => {
			if (!this.#end.signal.aborted) this.#failure = error;
		});
	}

	async #read(service: Endpoints): Promise<void> {
		for await (const { event, sequence } of watch(service, KEY, {}, this.#end.signal)) {
			if (event.case === "update") this.#seen.push(sequence);
			this.#cursor = sequence;
		}
	}

	/** Waits until the watch has begun and has come to a sequence. */
	async reaches(sequence: bigint, report: Report): Promise<void> {
		const until = performance.now() + CATCH_UP;
		while (this.#cursor === undefined || this.#cursor < sequence) {
			if (this.#failure !== undefined) return report.breaks(`the watcher that reads failed: ${String(this.#failure)}`);
			if (performance.now() > until) return report.breaks(`the watcher that reads stands at ${this.#cursor}`);
			await delay(20);
		}
	}

	/** Ends the watch; gives the sequences of the updates in the order in which they came. */
	async stop(): Promise<readonly bigint[]> {
		this.#end.abort();
		await this.#reading;
		return this.#seen;
	}
}

/** Posts records, a few at a time; gives their sequences in order. */
async function write(service: Endpoints, count: number): Promise<bigint[]> {
	const client = ingestClient(service, "gRPC", KEY);
	const sequences: bigint[] = [];
	let left = count;
	const writer = async (): Promise<void> => {
		while (left > 0) {
			left -= 1;
			const json = record({ agent_state: { filler: "x".repeat(UPDATE_BYTES) } });
			sequences.push((await client.ingestConversation(ingestRequest(json))).sequence);
		}
	};
	await Promise.all(Array.from({ length: WRITERS }, writer));
	return sequences.sort((a, b) => Number(a - b));
}

/** Watchers that read nothing, a connection each, over every protocol in turn. */
class SilentWatchers {
	readonly #connections: readonly (Disposable & { readonly open: boolean })[];

	private constructor(connections: readonly (Disposable & { readonly open: boolean })[]) {
		this.#connections = connections;
	}

	static async open(service: Endpoints, count: number): Promise<SilentWatchers> {
		const ways = [overGrpc, overConnect, overGrpcWithoutRoom, overGrpcWeb];
		const opened = Array.from({ length: count }, (_, index) => ways[index % ways.length]?.(service));
		const connections = await Promise.all(opened);
		return new SilentWatchers(connections.filter((connection) => connection !== undefined));
	}

	/** How many the server has not closed. */
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

/** Reads nothing from its socket. */
async function overGrpc(service: Endpoints): Promise<RawHttp2> {
	const client = await callOver(service);
	client.pause();
	return client;
}

/** Reads what comes, and never says that it has room for more than the first 64 KiB. */
const overGrpcWithoutRoom = callOver;

const overConnect = (service: Endpoints) => overHttp(service, "application/connect+proto");
const overGrpcWeb = (service: Endpoints) => overHttp(service, "application/grpc-web+proto");

async function overHttp(service: Endpoints, type: string): Promise<Disposable & { readonly open: boolean }> {
	const socket = openSocket(httpAddress(service)).pause();
	const bytes = postBytes(rpcPath(method), { "Content-Type": type, "X-Access-Token": KEY }, framed(message));
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
