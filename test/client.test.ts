import { readFileSync } from "node:fs";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
	type ConversationsClient,
	type ConversationsClientOptions,
	ConversationView,
	createConversationsClient,
	type WatchOptions,
} from "../src/client.ts";
import { readConfig } from "../src/config/config.ts";
import { SERVICES } from "../src/rpc/services.ts";
import { type RunningService, startService } from "../src/server.ts";
import { format } from "./conversations/read/reading.ts";
import { numbers, said } from "./conversations/watch/watching.ts";
import { READ_KEY, WatchService } from "./rpc/watch-service.ts";
import { record } from "./support/fixtures.ts";
import { KEY, testEnvironment } from "./support/service.ts";
import { silentLog } from "./support/silent-log.ts";
import { TcpProxy } from "./support/tcp-proxy.ts";
import { TempFolder } from "./support/temp.ts";
import { RELEASE_POLL } from "./support/watching.ts";

const ID = "0190d6a0-0000-7000-8000-000000000001";
const FROM_THE_BEGINNING = { start: { case: "afterSequence", value: 0n } } as const;
const SOON: WatchOptions = { backoff: 4, maxBackoff: 20 };
type Protocol = NonNullable<ConversationsClientOptions["protocol"]>;
const PROTOCOLS: readonly Protocol[] = ["connect", "grpc-web", "grpc"];

let folder: TempFolder;
let service: RunningService | undefined;
let proxy: TcpProxy;
let protocol: Protocol;

beforeEach(async () => {
	folder = new TempFolder();
	protocol = "connect";
	// While the service is stopped, nothing listens on the proxy's target, so connections fail as without the proxy.
	proxy = await TcpProxy.start(() => {
		const address = protocol === "grpc" ? service?.grpcAddress : service?.httpAddress;
		return address?.port ?? 1;
	});
});

afterEach(async () => {
	await proxy[Symbol.asyncDispose]();
	await stop();
	folder[Symbol.dispose]();
});

async function start(variables: Readonly<Record<string, string>> = {}): Promise<void> {
	const environment = { ...testEnvironment(folder.file("conversations.db")), DRAIN_SECONDS: "1", ...variables };
	const config = readConfig(environment);
	service = await startService(config, silentLog(), () => undefined);
}

async function stop(): Promise<void> {
	const running = service;
	service = undefined;
	await running?.stop();
}

function client(accessKey = KEY): ConversationsClient {
	return createConversationsClient({ baseUrl: `http://127.0.0.1:${proxy.port}`, accessKey, protocol });
}

/** Sends records directly to the service, because the tests break the proxy's connections. */
async function ingest(count: number): Promise<void> {
	if (service === undefined) throw new Error("there is no service");
	const baseUrl = `http://127.0.0.1:${service.httpAddress.port}`;
	const { ingest } = createConversationsClient({ baseUrl, accessKey: KEY });
	for (let index = 0; index < count; index++) {
		const conversation = format.fromJson(record());
		const { success } = await ingest.ingestConversation({ conversation });
		expect(success).toBe(true);
	}
}

/** Starts a watch that runs in the background until `signal` aborts. Returns the sequences it received, and its end. */
function collect(
	signal: AbortSignal,
	options: WatchOptions = SOON,
): { readonly sequences: bigint[]; end: Promise<unknown> } {
	const sequences: bigint[] = [];
	const watch = async () => {
		for await (const message of client().watch(FROM_THE_BEGINNING, { ...options, signal })) {
			const place = said(message);
			if (typeof place === "bigint") sequences.push(place);
		}
	};
	return { sequences, end: watch().catch((error: unknown) => error) };
}

async function refusal(watch: AsyncIterable<unknown>): Promise<Code> {
	try {
		for await (const _ of watch);
	} catch (error) {
		return ConnectError.from(error).code;
	}
	throw new Error("nothing was refused");
}

test.each(PROTOCOLS)("over %s a watch loses and repeats nothing across restarts of the service", async (chosen) => {
	protocol = chosen;
	const done = new AbortController();
	// The watch starts before the service does.
	const watch = collect(done.signal);
	for (let round = 1; round <= 3; round++) {
		await start();
		await ingest(5);
		if (round === 2) await expect.poll(() => watch.sequences.length).toBe(10);
		await stop();
	}
	await start();
	await expect.poll(() => watch.sequences.length).toBe(15);
	expect(watch.sequences).toEqual(numbers(1n, 15n));
	const reason = new Error("enough");
	done.abort(reason);
	expect(await watch.end).toBe(reason);
});

test.each(PROTOCOLS)("over %s a watch loses and repeats nothing when connections break or stall", async (chosen) => {
	protocol = chosen;
	await start();
	const done = new AbortController();
	const watch = collect(done.signal, { ...SOON, maxSilence: 150 });
	const interruptions = [() => proxy.cut(true), () => proxy.cut(false), () => proxy.fallSilent()];
	for (const [index, interrupt] of interruptions.entries()) {
		await ingest(5);
		await expect.poll(() => watch.sequences.length).toBe(index * 5 + 5);
		interrupt();
	}
	await ingest(5);
	await expect.poll(() => watch.sequences.length).toBe(20);
	expect(watch.sequences).toEqual(numbers(1n, 20n));
	done.abort();
	await watch.end;
});

test.each(PROTOCOLS)("over %s a watch waits as long as a rate limit asks for, and goes on", async (chosen) => {
	protocol = chosen;
	await start({ RATE_LIMIT_PER_KEY: "1" });
	const { conversations, watch } = client();
	expect(await refusal(repeating(() => conversations.listConversations({})))).toBe(Code.ResourceExhausted);
	for await (const message of watch({}, SOON)) {
		expect(said(message)).toEqual({ at: 0n, latest: 0n });
		break;
	}
});

/** Calls a function until it fails. */
async function* repeating(call: () => Promise<unknown>): AsyncGenerator<unknown> {
	for (;;) yield await call();
}

test("a watch of events loses and repeats nothing across restarts of the service", async () => {
	await start();
	const done = new AbortController();
	const received: [bigint, string | undefined][] = [];
	const watch = async () => {
		for await (const { sequence, content } of client().watchEvents(FROM_THE_BEGINNING, {
			...SOON,
			signal: done.signal,
		}))
			if (content.case === "event") received.push([sequence, content.value.event?.id]);
	};
	const end = watch().catch((error: unknown) => error);
	for (const id of ["a", "b"]) {
		const event = { id, timestamp: "2026-11-21T08:55:31", source: "agent", kind: "MessageEvent" };
		const { eventIngest } = client();
		const answer = await eventIngest.ingestConversationEvents({ conversationId: ID, events: [event] });
		expect(answer).toMatchObject({ success: true, stored: 1, updateSequence: 0n });
		await expect.poll(() => received.at(-1)?.[1]).toBe(id);
		await stop();
		await start();
	}
	expect(received).toEqual([
		[1n, "a"],
		[2n, "b"],
	]);
	done.abort();
	await end;
	const { events } = await client().events.listConversationEvents({ conversationId: ID });
	expect(events.map(({ sequence, event }) => [sequence, event?.id])).toEqual(received);
});

test("a watch throws an error that a retry cannot resolve", async () => {
	await using pruned = await WatchService.start();
	for (let index = 0; index < 3; index++) await pruned.reading.keep({ id: ID, title: `${index}` });
	await pruned.reading.pruneTo(1);
	const withKey = (accessKey: string) => createConversationsClient({ baseUrl: pruned.http, accessKey });
	const afterFirst = { start: { case: "afterSequence", value: 1n } } as const;
	expect(await refusal(withKey(READ_KEY).watch(afterFirst, SOON))).toBe(Code.OutOfRange);
	expect(await refusal(withKey(READ_KEY).watch({ conversationId: "x" }, SOON))).toBe(Code.InvalidArgument);
	expect(await refusal(withKey(READ_KEY).watch({ secrets: 3 }, SOON))).toBe(Code.PermissionDenied);
	expect(await refusal(withKey("another key").watch({}, SOON))).toBe(Code.Unauthenticated);
});

test.each(PROTOCOLS)("over %s leaving the loop ends the call on the server", async (chosen) => {
	await using watched = await WatchService.start();
	const followers = () => watched.watches.recent.usage.followers;
	const baseUrl = chosen === "grpc" ? `http://${watched.grpc}` : watched.http;
	const { watch } = createConversationsClient({ baseUrl, accessKey: READ_KEY, protocol: chosen });
	for await (const message of watch({}, SOON)) {
		expect(said(message)).toEqual({ at: 0n, latest: 0n });
		expect(followers()).toBe(1);
		break;
	}
	await expect.poll(followers, RELEASE_POLL).toBe(0);
});

test("the typed clients read the record that was sent", async () => {
	await start();
	const { ingest, conversations } = client();
	const conversation = format.fromJson(record({ id: ID, title: "hello" }));
	expect(await ingest.ingestConversation({ conversation })).toMatchObject({ success: true, sequence: 1n });
	expect((await conversations.getConversation({ id: ID })).conversation).toEqual(conversation);
	const list = await conversations.listConversations({ view: ConversationView.FULL });
	expect(list.conversations.map((entry) => entry.conversation)).toEqual([conversation]);
});

test.each(PROTOCOLS)(
	"over %s the typed clients list senders, make and revoke keys, and assign owners",
	async (chosen) => {
		protocol = chosen;
		await start({ ACCESS_KEYS: `test:${KEY}:ingest+read+keys` });
		await ingest(1);
		const { senders, accessKeys, owners } = client();
		const { key, accessKey } = await accessKeys.createAccessKey({ name: "agent", owner: "team-a" });
		expect(accessKey).toMatchObject({ name: "agent", scopes: ["ingest", "read"], owner: "team-a", createdBy: "test" });
		const ofOwner = async () => (await client(key).conversations.listConversations({})).conversations.length;
		expect(await ofOwner()).toBe(0);
		const conversations = { case: "sender", value: "test" } as const;
		expect((await owners.assignOwner({ owner: "team-a", conversations })).assigned).toBe(1n);
		expect(await ofOwner()).toBe(1);
		expect((await senders.listSenders({})).senders).toMatchObject([{ name: "test", owner: "", records: 1n }]);
		const { accessKeys: listed } = await accessKeys.listAccessKeys({});
		expect(listed.map(({ name, configured }) => [name, configured])).toEqual([
			["agent", false],
			["test", true],
		]);
		await accessKeys.revokeAccessKey({ name: "agent" });
		await expect(ofOwner()).rejects.toMatchObject({ code: Code.Unauthenticated });
	},
);

test("there is a typed client of each service", () => {
	const clients = Object.values(createConversationsClient({ baseUrl: "http://127.0.0.1", accessKey: KEY }));
	const offered = clients.flatMap((one) => (typeof one === "function" ? [] : Object.keys(one)));
	const methods = SERVICES.flatMap((service) => service.methods.map(({ localName }) => localName));
	expect(offered).toEqual(expect.arrayContaining(methods));
});

test("the client imports no code of the service", () => {
	const source = readFileSync(new URL("../src/client.ts", import.meta.url), "utf8");
	const modules = [...source.matchAll(/from "([^"]+)"/g)].map(([, name]) => name ?? "");
	expect(modules.length).toBeGreaterThan(5);
	expect(modules.filter((name) => !/^(?:node:|@bufbuild\/|@connectrpc\/|\.\.\/gen\/)/.test(name))).toEqual([]);
});
