import { createSecretKey, randomUUID } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { afterAll, describe, expect, test } from "vitest";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { AgentServerClient, type ClientOptions } from "../../src/reconcile/agent-server.ts";
import { newVerified, type ReconcileOptions, reconcile } from "../../src/reconcile/reconcile.ts";
import type { ExactJsonObject } from "../../src/record/json/json-value.ts";
import { LiveService, POSTER } from "../conversations/ingest/live-service.ts";
import {
	type Answer,
	FakeAgentServer,
	recordedAnswers,
	recordedConversations,
	replay,
	type Served,
	send,
	serve,
} from "./fake-agent-server.ts";

const KEY = "session-key";
const recorded = recordedAnswers();
const opened = new AsyncDisposableStack();
afterAll(() => opened.disposeAsync());

interface Setup {
	readonly service: LiveService;
	readonly server: FakeAgentServer;
	/** Runs a reconciliation. Returns its result, and the ids and messages of failures. */
	run(options?: Partial<ReconcileOptions & Pick<ClientOptions, "timeout" | "maxBytes" | "maxPages">>): Promise<{
		readonly progress: Awaited<ReturnType<typeof reconcile>>;
		readonly failures: readonly string[];
	}>;
}

async function setUp(answers: readonly Answer[], keys: Parameters<typeof LiveService.open>[0] = []): Promise<Setup> {
	const service = opened.use(await LiveService.open(keys));
	const server = opened.use(await FakeAgentServer.start(...answers));
	return {
		service,
		server,
		async run({ timeout = 60_000, maxBytes = 2 ** 24, maxPages = 100_000, ...options } = {}) {
			const signal = new AbortController().signal;
			const limits = { pageSize: 4, timeout, maxBytes, maxPages, retryDelay: 1, interval: 0, signal };
			const failures: string[] = [];
			const progress = await reconcile({
				client: new AgentServerClient({ url: server.url, key: KEY }, limits),
				sender: { names: [POSTER.sender], owner: undefined },
				store: service.store,
				ingest: service.ingest,
				eventIngest: service.events,
				onFailure: (id, error) => failures.push(`${id}: ${error instanceof Error ? error.message : error}`),
				signal,
				...options,
			});
			return { progress, failures };
		},
	};
}

async function storedEvents({ service }: Setup, id: unknown): Promise<{ origin: UpdateOrigin; json: unknown }[]> {
	const events = await service.store.events.list({ after: 0n, conversationId: String(id), limit: 1000 });
	return events.map(({ origin, event }) => {
		if ("unreadable" in event) throw new TypeError(event.unreadable);
		return { origin, json: JSON.parse(Buffer.from(event.text).toString()) };
	});
}

function sizeOf(json: ExactJsonObject): number {
	return Buffer.byteLength(JSON.stringify(json));
}

function firstRecorded(): Served {
	const [first] = recordedConversations();
	if (first === undefined) throw new TypeError("nothing was recorded");
	return first;
}

const SECOND = 1000;
const BEGIN = Date.parse("2026-11-20T10:00:00Z");
/** A time of a record, some seconds after the beginning. */
const at = (seconds: number): string => new Date(BEGIN + seconds * SECOND).toISOString();
/** The same time as events have it: local, without offset. */
const local = (seconds: number): string => at(seconds).slice(0, -1);

function recordOf(id: string, updated: number, members: ExactJsonObject = {}): ExactJsonObject {
	return {
		id,
		workspace: { kind: "LocalWorkspace", working_dir: "/workspace" },
		agent: { kind: "Agent", llm: { model: "openai/gpt-4o" }, tools: [] },
		created_at: at(0),
		updated_at: at(updated),
		...members,
	};
}

function eventOf(id: string, seconds: number, members: ExactJsonObject = {}): ExactJsonObject {
	return { id, timestamp: local(seconds), source: "agent", kind: "MessageEvent", ...members };
}

function stateOf(id: string, seconds: number, key: string, value: string): ExactJsonObject {
	return { ...eventOf(id, seconds), source: "environment", kind: "ConversationStateUpdateEvent", key, value };
}

describe("recorded answers of a real agent server", () => {
	test("everything is taken in, over several pages and with origin RECONCILED, and nothing a second time", async () => {
		const setup = await setUp([replay(recorded)]);
		const conversations = recordedConversations();
		expect(conversations.length).toBeGreaterThan(4);
		const events = conversations.reduce((sum, conversation) => sum + conversation.events.length, 0);

		const { progress, failures } = await setup.run();
		expect(failures).toEqual([]);
		expect(progress).toMatchObject({
			conversations: conversations.length,
			events,
			records: conversations.length,
			gone: 0,
		});
		for (const conversation of conversations) {
			const { id } = conversation.record;
			expect(await setup.service.record(String(id))).toEqual(setup.service.asStored(conversation.record));
			const stored = await storedEvents(setup, id);
			expect(stored.map(({ json }) => json)).toEqual(conversation.events);
			expect(new Set(stored.map(({ origin }) => origin))).toEqual(new Set([UpdateOrigin.RECONCILED]));
		}
		const updates = await setup.service.updates();
		expect(new Set(updates.map(({ origin }) => origin))).toEqual(new Set([UpdateOrigin.RECONCILED]));
		// What was fetched says nothing of the life of the sender.
		expect((await setup.service.store.listSenders()).senders).toEqual([]);

		const again = await setup.run();
		expect(again.progress).toMatchObject({ conversations: conversations.length, events: 0, records: 0, failures: 0 });
		expect(await setup.service.updates()).toHaveLength(updates.length);
		expect(setup.server.requests.every((request) => request.startsWith("GET ") && request.endsWith(KEY))).toBe(true);
	});

	test("an erased conversation is not taken in again, and its events are not read", async () => {
		const setup = await setUp([replay(recorded)]);
		await setup.run();
		const conversationId = String(recordedConversations()[0]?.record.id);
		const { store } = setup.service;
		expect(await store.erase({ conversationId, owner: undefined, erasedAt: 0n })).toBeDefined();
		const updates = await setup.service.updates();
		const requests = setup.server.requests.length;
		const { progress, failures } = await setup.run();
		expect({ ...progress, failures }).toMatchObject({ events: 0, records: 0, gone: 0, failures: [] });
		expect(await setup.service.updates()).toEqual(updates);
		expect(await storedEvents(setup, conversationId)).toEqual([]);
		const read = setup.server.requests.slice(requests);
		expect(read.some((request) => request.includes(`${conversationId}/events`))).toBe(false);
		expect(read.some((request) => request.includes("/events"))).toBe(true);
	});

	test("after posts of which some were lost, the result is the same", async () => {
		const setup = await setUp([replay(recorded)]);
		const conversations = recordedConversations();
		for (const { record, events } of conversations) {
			await setup.service.post({
				...record,
				execution_status: "idle",
				updated_at: record.created_at ?? null,
				title: null,
			});
			await setup.service.batch(String(record.id), events.filter((_, index) => index % 3 !== 1).slice(0, 8));
		}
		await setup.run();
		for (const { record, events } of conversations) {
			expect(await setup.service.record(String(record.id))).toEqual(setup.service.asStored(record));
			const stored = await storedEvents(setup, record.id);
			expect(new Set(stored.map(({ json }) => JSON.stringify(json)))).toEqual(
				new Set(events.map((event) => JSON.stringify(event))),
			);
		}
	});
});

describe("answers that are no success", () => {
	const failing =
		(path: RegExp, times: number, answer: Answer): Answer =>
		(request, response) => {
			if (times === 0 || !path.test(request.url ?? "")) return false;
			times -= 1;
			return answer(request, response);
		};
	const cut: Answer = (_, response) => {
		response.writeHead(200, { "Content-Length": "1000" });
		response.write('{"items":[', () => response.destroy());
		return true;
	};
	const slow: Answer = (_, response) => {
		response.writeHead(200);
		response.write("{");
		return true;
	};

	test.each<readonly [string, Answer]>([
		["429 with Retry-After", (_, response) => send(response, 429, "{}", { "Retry-After": "0" })],
		["503 with a date", (_, response) => send(response, 503, "", { "Retry-After": new Date(0).toUTCString() })],
		["500", (_, response) => send(response, 500, "Internal Server Error")],
		["an answer that is cut", cut],
	])("%s is asked again", async (_, answer) => {
		const setup = await setUp([failing(/./, 3, answer), failing(/include_skills/, 2, answer), replay(recorded)]);
		const { progress } = await setup.run();
		expect(progress).toMatchObject({ conversations: 5, records: 5, failures: 0 });
	});

	test("a slow answer is asked again after its time", async () => {
		const setup = await setUp([failing(/search/, 1, slow), replay(recorded)]);
		const { progress } = await setup.run({ timeout: 2_000 });
		expect(progress).toMatchObject({ conversations: 5, records: 5, failures: 0 });
	});

	test.each([401, 403])("%i ends the run at once, and the error names no key", async (status) => {
		const setup = await setUp([(_, response) => send(response, status, `{"detail":"${KEY}"}`)]);
		await expect(setup.run()).rejects.toThrow(`The agent server refuses the key (${status})`);
		expect(setup.server.requests).toHaveLength(1);
	});

	test("a server that does not answer, and one that is no agent server, end the run", async () => {
		await expect((await setUp([cut])).run()).rejects.toThrow(
			"The agent server cannot be reached, or its answer was cut",
		);
		await expect((await setUp([])).run()).rejects.toThrow("The agent server has no list of conversations");
		const page: Answer = (_, response) => send(response, 200, "<html></html>");
		await expect((await setUp([page])).run()).rejects.toThrow("Its answer is not JSON");
		const items = JSON.stringify([{ id: randomUUID() }]);
		const loop: Answer = (_, response) => send(response, 200, `{"items":${items},"next_page_id":"x"}`);
		await expect((await setUp([loop])).run()).rejects.toThrow("The agent server repeats the pages of a list");
		const foreign: Answer = (_, response) => send(response, 200, '{"items":[{"id":"../../etc"}],"next_page_id":null}');
		await expect((await setUp([foreign])).run()).rejects.toThrow("whose id is not a UUID");
	});

	/** Lists pages without end, each with the id of another one. */
	const endless =
		(path: RegExp, newItem: () => ExactJsonObject | undefined): Answer =>
		({ url = "" }, response) => {
			if (!path.test(url)) return false;
			const item = newItem();
			const items = item === undefined ? [] : [item];
			return send(response, 200, JSON.stringify({ items, next_page_id: randomUUID() }));
		};
	test("an empty page ends a list, whatever it names as the next one", async () => {
		const conversation = firstRecorded();
		const ofConversations = await setUp([endless(/conversations\/search/, () => undefined)]);
		expect((await ofConversations.run()).progress).toMatchObject({ conversations: 0, failures: 0 });
		expect(ofConversations.server.requests).toHaveLength(1);

		const ofEvents = await setUp([endless(/events\/search/, () => undefined), serve([conversation])]);
		expect((await ofEvents.run()).progress).toMatchObject({ conversations: 1, events: 0, records: 1, failures: 0 });
		expect(ofEvents.server.requests.filter((request) => request.includes("/events/"))).toHaveLength(1);
	});

	test("a list ends that has pages without end", async () => {
		const conversations = await setUp([
			endless(/conversations\/search/, () => ({ id: randomUUID() })),
			(_, response) => send(response, 404, ""),
		]);
		await expect(conversations.run({ maxPages: 3 })).rejects.toThrow("The agent server lists pages without end");

		const conversation = firstRecorded();
		let seconds = 0;
		const events = await setUp([
			endless(/events\/search/, () => eventOf(randomUUID(), ++seconds)),
			serve([conversation]),
		]);
		const { progress, failures } = await events.run({ maxPages: 3 });
		expect(failures).toEqual([`${conversation.record.id}: The agent server lists pages without end`]);
		expect(progress.events).toBe(4);
	});

	test("a comparison has an end, and what was taken in stays", async () => {
		const conversation = firstRecorded();
		let seconds = 0;
		const setup = await setUp([
			endless(/events\/search/, () => eventOf(randomUUID(), ++seconds)),
			serve([conversation]),
		]);
		const { progress, failures } = await setup.run({ comparison: 1_000 });
		expect(failures).toEqual([`${conversation.record.id}: The comparison takes too long`]);
		expect(await storedEvents(setup, conversation.record.id)).toHaveLength(Math.min(1_000, progress.events));
	});

	test("a redirect is not followed, so that the key stays with its origin", async () => {
		const other = opened.use(await FakeAgentServer.start(replay(recorded)));
		const setup = await setUp([(_, response) => send(response, 307, "", { Location: other.url.href })]);
		await expect(setup.run()).rejects.toThrow("The agent server cannot be reached");
		expect(other.requests).toEqual([]);
	});

	test("a conversation that fails, or is gone, does not keep others from being taken in", async () => {
		const [first, second, third] = recordedConversations().map(({ record }) => String(record.id));
		const setup = await setUp([
			failing(new RegExp(`${first}\\?`), -1, (_, response) => send(response, 500, "")),
			failing(new RegExp(`${second}`), -1, (_, response) => send(response, 404, "")),
			failing(new RegExp(`${third}\\?`), -1, (_, response) => send(response, 200, '{"id":"x"}')),
			replay(recorded),
		]);
		const { progress, failures } = await setup.run();
		expect(progress).toMatchObject({ conversations: 5, records: 2, failures: 2 });
		expect(failures).toEqual([
			`${first}: The agent server answers with status 500`,
			expect.stringContaining(`${third}: `),
		]);
	});

	test("a page that is too large is read in smaller ones", async () => {
		const conversations = recordedConversations();
		const sizes = conversations.flatMap(({ record, events }) => [record, ...events].map(sizeOf));
		// Room for one entry and what a page has around it.
		const maxBytes = Math.max(...sizes) + 100;
		const setup = await setUp([serve(conversations)]);
		const whole = await setup.run({ maxBytes });
		expect(whole.progress).toMatchObject({ conversations: conversations.length, failures: 0 });
		expect(setup.server.requests.some((request) => /limit=1\b/.test(request))).toBe(true);
	});
});

describe("which values are taken", () => {
	test("a record with an equal or older updated_at replaces no posted value", async () => {
		for (const seconds of [9, 10]) {
			const id = randomUUID();
			const posted = recordOf(id, 10, { title: "Posted", execution_status: "finished", tags: { a: "posted" } });
			const stale = recordOf(id, seconds, { title: "Stale", execution_status: "running", tags: { a: "stale" } });
			const setup = await setUp([serve([{ record: stale, events: [eventOf("e", 20)] }])]);
			await setup.service.post(posted);
			const { progress } = await setup.run();
			expect(progress).toMatchObject({ events: 1, records: 0 });
			const expected = { ...setup.service.asStored(posted), leaf_event_id: "e" };
			expect(await setup.service.record(id)).toEqual(expected);
		}
	});

	test("events keep their order, also from an agent server that knows no order of lists", async () => {
		const id = randomUUID();
		const events = Array.from({ length: 3 }, (_, n) => eventOf(`e${n}`, n));
		const unordered: Answer = (request, response) => {
			request.url = request.url?.replace("TIMESTAMP_DESC", "TIMESTAMP") ?? "";
			return serve([{ record: recordOf(id, 10, { leaf_event_id: "e2" }), events }])(request, response);
		};
		for (const answer of [unordered, serve([{ record: recordOf(id, 10, { leaf_event_id: "e2" }), events }])]) {
			const setup = await setUp([answer]);
			await setup.run();
			expect((await storedEvents(setup, id)).map(({ json }) => json)).toEqual(events);
			expect(await setup.service.record(id)).toMatchObject({ leaf_event_id: "e2" });
		}
	});

	test("a newer record replaces the posted one, and later posts count as before", async () => {
		const id = randomUUID();
		const setup = await setUp([serve([{ record: recordOf(id, 20, { title: "New" }), events: [] }])]);
		await setup.service.post(recordOf(id, 10, { title: "Old" }));
		await setup.run();
		expect(await setup.service.record(id)).toMatchObject({ title: "New" });
		await setup.service.post(recordOf(id, 15, { title: "Late" }));
		expect(await setup.service.record(id)).toMatchObject({ title: "New" });
		await setup.service.post(recordOf(id, 20, { title: "Same time" }));
		expect(await setup.service.record(id)).toMatchObject({ title: "Same time" });
		await setup.service.post(recordOf(id, 20, { title: "Same time", execution_status: "deleting" }));
		await setup.run();
		expect(await setup.service.record(id)).toMatchObject({ title: "Same time", execution_status: "deleting" });
	});

	test("while a pause waits for the end of a step, the saved status does not replace the reported one", async () => {
		const id = randomUUID();
		// As captured: the API shows the state of the last save, with the time of the last event.
		const events = [
			stateOf("run", 1, "execution_status", "running"),
			eventOf("observation", 9),
			stateOf("pause", 10, "execution_status", "paused"),
			eventOf("paused", 10.01, { kind: "PauseEvent" }),
		];
		const record = recordOf(id, 10.02, { execution_status: "running", leaf_event_id: "observation" });
		const conversations = [{ record, events }];
		const setup = await setUp([serve(conversations)]);
		await setup.service.post(recordOf(id, 0, { execution_status: "idle" }));
		await setup.run();
		expect(await setup.service.record(id)).toMatchObject({
			execution_status: "paused",
			leaf_event_id: "paused",
			updated_at: "2026-11-20T10:00:10.020000Z",
		});
	});

	test("what a full state leaves out of the first record is added, also when it is later than the last listed event", async () => {
		const id = randomUUID();
		const llm = { model: "openai/gpt-4o", a_new_member: null, top_p: null };
		const agent = { kind: "Agent", llm, tools: [] };
		const added = { title: "Title", tool_module_qualnames: { terminal: "tools.terminal" } };
		const record = recordOf(id, 10, { agent, ...added, persistence_dir: "/data", leaf_event_id: "e" });
		const value = {
			agent: { kind: "Agent", llm: { model: "openai/gpt-4o" }, tools: [] },
			workspace: record.workspace ?? null,
			persistence_dir: "/data",
			execution_status: "idle",
		};
		const setup = await setUp([serve([{ record, events: [eventOf("e", 9)] }])]);
		await setup.service.batch(id, [{ ...stateOf("full", 20, "full_state", ""), value }]);
		expect(await setup.service.record(id)).toMatchObject({ title: null });
		expect((await setup.run()).progress).toMatchObject({ records: 1, gapsClosed: 1 });
		expect(await setup.service.record(id)).toEqual(setup.service.asStored(record));
		expect((await setup.run()).progress).toMatchObject({ records: 0 });
	});

	test("a placeholder, a null or a missing secret does not replace a stored secret", async () => {
		const id = randomUUID();
		const llm = { model: "openai/gpt-4o", api_key: "the-key", extra_headers: { Authorization: "Bearer abc" } };
		const secret = { kind: "StaticSecret", value: "hidden-value" };
		const posted = recordOf(id, 10, {
			agent: { kind: "Agent", llm, tools: [], agent_context: { secrets: { A: "one" } } },
			secret_registry: { secret_sources: { T: secret } },
		});
		const fetched = recordOf(id, 20, {
			title: "New",
			agent: {
				kind: "Agent",
				llm: { ...llm, api_key: null },
				tools: [],
				agent_context: { secrets: { A: "**********" } },
			},
			secret_registry: { secret_sources: { T: { ...secret, value: null } } },
		});
		for (const keys of [[], [createSecretKey(Buffer.alloc(32, 7))]]) {
			const setup = await setUp([serve([{ record: fetched, events: [] }])], keys);
			await setup.service.post(posted);
			expect((await setup.run()).progress).toMatchObject({ records: 1, failures: 0 });
			const expected = setup.service.asStored({ ...posted, title: "New", updated_at: at(20) });
			if (keys.length > 0) expect(await setup.service.record(id)).toEqual(expected);
			else expect(await setup.service.record(id)).toMatchObject({ title: "New" });
			expect((await setup.run()).progress).toMatchObject({ records: 0 });
		}
	});

	test("a conversation that began again replaces its earlier life, never the reverse", async () => {
		const id = randomUUID();
		const again = recordOf(id, 110, { created_at: at(100), title: "Second life" });
		const conversations: Served[] = [{ record: again, events: [] }];
		const setup = await setUp([serve(conversations)]);
		await setup.service.post(recordOf(id, 10, { execution_status: "deleting" }));
		expect((await setup.run()).progress).toMatchObject({ records: 1 });
		expect(await setup.service.record(id)).toMatchObject({ title: "Second life", created_at: "2026-11-20T10:01:40Z" });
		conversations[0] = { record: recordOf(id, 300, { title: "First life" }), events: [] };
		expect((await setup.run()).progress).toMatchObject({ records: 0 });
		expect(await setup.service.record(id)).toMatchObject({ title: "Second life" });
		const updates = await setup.service.updates();
		expect(updates.map(({ change, origin }) => ({ change, origin }))).toEqual([
			{ change: UpdateChange.DELETED, origin: UpdateOrigin.POSTED },
			{ change: UpdateChange.STARTED, origin: UpdateOrigin.RECONCILED },
		]);
	});

	test("a conversation of another owner is left alone, and nothing of it is asked", async () => {
		const id = randomUUID();
		const setup = await setUp([serve([{ record: recordOf(id, 20, { title: "New" }), events: [eventOf("e", 1)] }])]);
		const body = Buffer.from(JSON.stringify(recordOf(id, 10)));
		await setup.service.ingest.json(body, { sender: "blue-agent", owner: "blue" }, { aborted: false });
		const { progress, failures } = await setup.run({ sender: { names: ["red-agent"], owner: "red" } });
		expect(progress).toMatchObject({ conversations: 1, events: 0, records: 0, failures: 1 });
		expect(failures).toEqual([`${id}: The conversation belongs to another owner`]);
		expect(setup.server.requests.filter((request) => request.includes(id))).toEqual([]);
		expect(await setup.service.record(id)).toMatchObject({ title: null });
	});

	test("conversations that the agent server no longer has are named, and stay", async () => {
		const [known, gone, deleted] = [randomUUID(), randomUUID(), randomUUID()];
		const setup = await setUp([serve([{ record: recordOf(known, 10), events: [] }])]);
		await setup.service.post(recordOf(known, 10));
		await setup.service.post(recordOf(gone, 10, { execution_status: "running" }));
		await setup.service.post(recordOf(deleted, 10, { execution_status: "deleting" }));
		const { progress } = await setup.run();
		expect(progress).toMatchObject({ gone: 1, goneIds: [gone] });
		expect(await setup.service.record(gone)).toMatchObject({ execution_status: "running" });
		expect((await setup.run({ sender: { names: [], owner: undefined } })).progress).toMatchObject({ gone: 0 });
	});
});

test("a later run reads only conversations that have changed since the one before", async () => {
	const id = randomUUID();
	const events = Array.from({ length: 30 }, (_, n) => eventOf(`e${n}`, 10_000 + n));
	const conversations: Served[] = [{ record: recordOf(id, 10_100), events }];
	const setup = await setUp([serve(conversations)]);
	const verified = newVerified();
	await setup.run({ verified });
	setup.server.requests.length = 0;
	expect((await setup.run({ verified })).progress).toMatchObject({ conversations: 1, events: 0 });
	expect(setup.server.requests).toHaveLength(1);
	const later = Array.from({ length: 10 }, (_, n) => eventOf(`f${n}`, 20_000 + n));
	conversations[0] = { record: recordOf(id, 20_100), events: [...events, ...later] };
	setup.server.requests.length = 0;
	expect((await setup.run({ verified })).progress).toMatchObject({ events: 10, records: 1 });
});

test("a run that is stopped can be repeated", async () => {
	const setup = await setUp([replay(recorded)]);
	const stop = new AbortController();
	const stopped = setup.run({ signal: stop.signal, onProgress: () => stop.abort(new Error("stopped")) });
	await expect(stopped).rejects.toThrow("stopped");
	await setImmediate();
	await setup.run();
	for (const { record } of recordedConversations())
		expect(await setup.service.record(String(record.id))).toEqual(setup.service.asStored(record));
});
