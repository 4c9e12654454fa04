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
			using stack = new DisposableStack();
			const watchers = await openSilent(service, count, stack);
			const [first = 0n] = await write(service, 1, UPDATE_BYTES);
			const writing = write(service, count * UPDATES, UPDATE_BYTES).then(async (sequences) => [
				...sequences,
				...(await write(service, LARGE_UPDATES, LARGE_UPDATE_BYTES)),
			]);
			const seen = await read(service, first, writing).catch((error: unknown) => {
				report.breaks(`the watcher that reads failed: ${String(error)}`);
				return [];
			});
			const acknowledged = await writing;
			const given = new Set(seen);
			const missed = acknowledged.filter((sequence) => !given.has(sequence));
			report.expect(missed.length === 0, `the watcher that reads was not given ${missed.length} updates`);
			const ordered = seen.every((sequence, index) => index === 0 || sequence > (seen[index - 1] ?? 0n));
			report.expect(ordered, "the watcher that reads was given updates out of order");
			for (const { open } of watchers) report.answer("watchers that read nothing", open ? "open" : "closed");
		};
		await subject.amongOrdinary(() => subject.untilSteady(load, quiet(count, silentWatchers), MAX_MEMORY));
		await subject.expectSound();
	},
};

/**
 * Watches from a sequence until the last update that `written` tells, and returns the sequences in the order of their
 * arrival. Ordinary clients go on posting, so that updates follow the last one.
 */
async function read(service: Endpoints, from: bigint, written: Promise<readonly bigint[]>): Promise<readonly bigint[]> {
	const seen: bigint[] = [];
	let last: bigint | undefined;
	const end = new AbortController();
	let timer: NodeJS.Timeout | undefined;
	const knowing = written.then((sequences) => {
		last = sequences.at(-1);
		timer = setTimeout(() => end.abort(), CATCH_UP_TIMEOUT);
	});
	const start = { case: "afterSequence", value: from } as const;
	try {
		for await (const { content, sequence } of watch(service, KEY, { start }, end.signal)) {
			if (content.case === "update") seen.push(sequence);
			if (last !== undefined && sequence >= last) break;
		}
	} finally {
		end.abort();
		await knowing;
		clearTimeout(timer);
	}
	return seen;
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

/** The connection of a watcher that does not read. */
type Silent = Disposable & { readonly open: boolean };

/** Opens watchers that do not read, each with its own connection, over all protocols in turn. */
async function openSilent(service: Endpoints, count: number, stack: DisposableStack): Promise<readonly Silent[]> {
	const transports = [overGrpc, overConnect, overGrpcWithoutWindow, overGrpcWeb];
	const opened = Array.from({ length: count }, (_, index) => transports[index % transports.length]?.(service));
	const watchers = (await Promise.all(opened)).filter((watcher) => watcher !== undefined);
	return watchers.map((watcher) => stack.use(watcher));
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

async function overHttp(service: Endpoints, type: string): Promise<Silent> {
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
