import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import {
	ConversationService,
	WatchConversationUpdatesRequestSchema,
	type WatchConversationUpdatesResponse,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { type ConversationsClient, createConversationsClient, type WatchRequest } from "../../src/client.ts";
import { GrpcClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { Random } from "../support/random.ts";
import { recordMessage } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";

const WRITERS = 6;
/** Number of updates that each writer posts, while watchers disconnect and resume. */
const POSTS = 100;
const WATCHERS = 24;
/** Number of posts after which the next watcher arrives. */
const POSTS_PER_ARRIVAL = 12;
/** Number of posts after which the proxy cuts connections. */
const POSTS_PER_CUT = 20;
/** Maximum number of messages that a watcher receives before it disconnects. */
const MAX_MESSAGES = 40;
const CONVERSATIONS = Array.from({ length: 8 }, () => randomUUID());
const PROTOCOLS = ["connect", "grpc-web", "grpc", "grpc-js"] as const;

/** An update that the service has acknowledged or listed. */
interface Update {
	readonly sequence: bigint;
	readonly conversationId: string;
}

/** A client that watches, disconnects and resumes. */
interface Watcher {
	readonly protocol: (typeof PROTOCOLS)[number];
	/** Undefined for all conversations. */
	readonly conversationId: string | undefined;
	/** Sequence after which it started. Undefined until the first message shows it. */
	start: bigint | undefined;
	/** Sequence of the last message. */
	cursor: bigint | undefined;
	/** Sequences of the received updates. */
	readonly seen: bigint[];
	/** Number of streams that have ended. */
	endedStreams: number;
	readonly random: Random;
}

/** Posts updates. Calls `onPosted` after each one. */
async function write(client: ConversationsClient, random: Random, onPosted: () => void): Promise<Update[]> {
	const acknowledged: Update[] = [];
	for (let count = 0; count < POSTS; count++) {
		const conversationId = random.pick(CONVERSATIONS) ?? randomUUID();
		const tags = { size: "x".repeat(random.integer(0, 200)) };
		const conversation = recordMessage(record({ id: conversationId, title: randomUUID(), tags }));
		const { sequence } = await client.ingest.ingestConversation({ conversation });
		acknowledged.push({ sequence, conversationId });
		onPosted();
		await sleep(random.integer(0, 24));
	}
	return acknowledged;
}

/**
 * Watches from the watcher's cursor until the signal is aborted, the stream fails, or `mayLeave` returns true after a
 * message.
 */
async function watchOnce(
	service: TestService,
	proxy: TcpProxy,
	watcher: Watcher,
	signal: AbortSignal,
	mayLeave: () => boolean,
): Promise<void> {
	const from: WatchRequest =
		watcher.cursor === undefined ? {} : { start: { case: "afterSequence", value: watcher.cursor } };
	const request = { ...from, conversationId: watcher.conversationId ?? "" };
	for await (const message of messages(service, proxy, watcher.protocol, request, signal)) {
		const { sequence, content } = message;
		watcher.start ??= content.case === "update" ? sequence - 1n : sequence;
		watcher.cursor = sequence;
		if (content.case === "update") {
			expect(content.value.sequence).toBe(sequence);
			watcher.seen.push(sequence);
		}
		// Now and then a watcher reads slowly.
		if (watcher.random.integer(0, 200) === 0) await sleep(watcher.random.integer(0, 120));
		if (signal.aborted || mayLeave()) return;
	}
}

async function* messages(
	service: TestService,
	proxy: TcpProxy,
	protocol: Watcher["protocol"],
	request: WatchRequest,
	signal: AbortSignal,
) {
	if (protocol !== "grpc-js") {
		// Over the proxy the client resumes by itself whenever the connection is cut.
		const baseUrl = protocol === "grpc" ? `http://${service.grpc}` : `http://127.0.0.1:${proxy.port}`;
		const client = createConversationsClient({ baseUrl, accessKey: KEY, protocol });
		yield* client.watch(request, { signal, backoff: 10, maxBackoff: 200 });
		return;
	}
	using client = new GrpcClient(service, KEY);
	const method = ConversationService.method.watchConversationUpdates;
	const stream = client.stream(method, create(WatchConversationUpdatesRequestSchema, request));
	const cancel = () => stream.cancel();
	signal.addEventListener("abort", cancel, { once: true });
	try {
		yield* stream as AsyncIterable<WatchConversationUpdatesResponse>;
	} finally {
		signal.removeEventListener("abort", cancel);
		stream.cancel();
	}
}

/** Disconnects and resumes at random. After `over`, stays connected until `end` is aborted. */
async function watch(service: TestService, proxy: TcpProxy, watcher: Watcher, over: () => boolean, end: AbortSignal) {
	while (!end.aborted) {
		let left = watcher.random.integer(1, MAX_MESSAGES);
		const mayLeave = () => {
			left -= 1;
			return left <= 0 && !over();
		};
		try {
			await watchOnce(service, proxy, watcher, end, mayLeave);
		} catch (error) {
			// After an abort the error is expected. Any other error is a fault of the service.
			if (!end.aborted) throw ConnectError.from(error);
		}
		watcher.endedStreams += 1;
		if (!over()) await sleep(watcher.random.integer(0, 200));
	}
}

/** Returns all stored updates. */
async function allUpdates(client: ConversationsClient): Promise<Update[]> {
	const updates: Update[] = [];
	let pageToken = "";
	do {
		const page = await client.conversations.listConversationUpdates({ pageSize: 1000, pageToken });
		updates.push(...page.updates.map(({ sequence, conversationId }) => ({ sequence, conversationId })));
		pageToken = page.nextPageToken;
	} while (pageToken !== "");
	return updates;
}

test("watchers that disconnect and resume at random receive every update of concurrent writers once and in order", async () => {
	await using service = await startTestService();
	await using proxy = await TcpProxy.start(() => Number(new URL(service.http).port));
	const client = createConversationsClient({ baseUrl: service.http, accessKey: KEY });
	let posted = 0;
	const over = () => posted === WRITERS * POSTS;
	const caughtUp = new AbortController();
	const random = Random.ofTest();

	const watchers: Watcher[] = [];
	const running: Promise<void>[] = [];
	const arriving = random.of("arrivals");
	const arrive = (cursor: bigint | undefined) => {
		const index = watchers.length;
		const watcher: Watcher = {
			protocol: PROTOCOLS[index % PROTOCOLS.length] ?? "connect",
			conversationId: arriving.integer(0, 3) === 0 ? arriving.pick(CONVERSATIONS) : undefined,
			start: cursor,
			cursor,
			seen: [],
			endedStreams: 0,
			random: random.of(`watcher ${index}`),
		};
		watchers.push(watcher);
		running.push(watch(service, proxy, watcher, over, caughtUp.signal));
	};
	const cutting = random.of("cuts");
	const onPosted = () => {
		posted += 1;
		if (posted % POSTS_PER_CUT === 0) proxy.cut(cutting.integer(0, 2) === 0);
		if (posted % POSTS_PER_ARRIVAL > 0 || watchers.length === WATCHERS) return;
		const newest = Math.max(0, ...watchers.map(({ cursor }) => Number(cursor ?? 0n)));
		// From the beginning, from now, or from anywhere between.
		arrive(arriving.pick([0n, undefined, BigInt(arriving.integer(0, newest + 1))]));
	};

	const writers = Array.from({ length: WRITERS }, (_, index) => write(client, random.of(`writer ${index}`), onPosted));
	const acknowledged = await Promise.all(writers);
	const truth = await allUpdates(client);
	const newest = truth.at(-1)?.sequence ?? 0n;
	try {
		await expect.poll(() => watchers.filter(({ cursor }) => cursor !== newest).length, { timeout: 90_000 }).toBe(0);
	} finally {
		caughtUp.abort();
		await Promise.all(running);
	}

	const bySequence = (a: Update, b: Update) => Number(a.sequence - b.sequence);
	expect(acknowledged.flat().toSorted(bySequence)).toEqual(truth);
	for (const { seen, start = 0n, conversationId } of watchers) {
		const expected = truth.filter(
			(update) => update.sequence > start && (conversationId === undefined || update.conversationId === conversationId),
		);
		expect(seen).toEqual(expected.map(({ sequence }) => sequence));
	}
	expect(watchers.length).toBe(WATCHERS);
	expect(truth.length).toBe(WRITERS * POSTS);
	expect(watchers.reduce((sum, { endedStreams }) => sum + endedStreams, 0)).toBeGreaterThan(WATCHERS);
});
