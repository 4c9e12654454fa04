import { createSecretKey, randomBytes, randomUUID } from "node:crypto";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { ServiceError } from "../../../src/errors.ts";
import type { ExactJson, ExactJsonObject } from "../../../src/record/json/json-value.ts";
import { permutations } from "../../store/samples.ts";
import { record } from "../../support/fixtures.ts";
import { seedProperties } from "../../support/random.ts";
import { LiveService } from "./live-service.ts";

seedProperties();

let service: LiveService;
beforeAll(async () => {
	service = await LiveService.open();
});
afterAll(() => service[Symbol.asyncDispose]());

const at = (second: number): string => `2026-01-01T00:00:${String(second).padStart(2, "0")}`;

/** Returns a state update that reports the value of a member at a second. */
const report = (second: number, key: string, value: ExactJson, id: string = randomUUID()): ExactJsonObject => ({
	id,
	timestamp: at(second),
	source: "environment",
	kind: "ConversationStateUpdateEvent",
	key,
	value,
});

const posted = (id: string, second: number, members: ExactJsonObject): ExactJsonObject => ({
	...record({ id }),
	updated_at: `${at(second)}Z`,
	...members,
});

/** Returns the named members of the current record. */
async function shown(id: string, ...names: string[]): Promise<unknown[]> {
	const current = await service.record(id);
	return names.map((name) => current?.[name]);
}

interface Post {
	readonly second: number;
	readonly values: ExactJsonObject;
}
interface Event {
	readonly id: string;
	readonly second: number;
	readonly values: ExactJsonObject;
	readonly isFull: boolean;
}
type Delivery = { readonly post: Post } | { readonly batch: readonly Event[] };

/** Reference model: the latest value of a member holds; at equal times a posted one, else the last to arrive. */
class Model {
	#base: Post | undefined;
	readonly #events: Event[] = [];

	deliver(delivery: Delivery): void {
		if ("batch" in delivery) {
			for (const event of delivery.batch) if (!this.#events.some(({ id }) => id === event.id)) this.#events.push(event);
			return;
		}
		const { second, values } = delivery.post;
		const base = this.#base;
		const [wasDeleting, isDeleting] = [base?.values, values].map((one) => one?.execution_status === "deleting");
		const replaces =
			wasDeleting === isDeleting &&
			base !== undefined &&
			(second > base.second || (second === base.second && !isDeleting));
		if (base === undefined || (isDeleting && !wasDeleting) || replaces) this.#base = { second, values };
	}

	record(): ExactJsonObject | undefined {
		if (this.#base === undefined) return undefined;
		const { second, values } = this.#base;
		if (values.execution_status === "deleting") return values;
		const members: ExactJsonObject = {};
		for (const name of Object.keys(values)) {
			let last = { second, value: values[name] ?? null };
			for (const event of this.#events) {
				const value = event.values[name];
				const isValid = value !== undefined && !(name === "max_iterations" && Number(value) <= 0);
				if (isValid && event.second > second && event.second >= last.second) last = { second: event.second, value };
			}
			members[name] = last.value;
		}
		return members;
	}
}

const second = fc.integer({ min: 1, max: 12 });
const values = {
	execution_status: fc.constantFrom("idle", "running", "paused", "finished"),
	tags: fc.dictionary(fc.constantFrom("a", "b"), fc.constantFrom("1", "2"), { noNullPrototype: true }),
	last_user_message_id: fc.constantFrom("m1", "m2", "m3"),
	// 0 breaks a rule.
	max_iterations: fc.integer({ min: 0, max: 3 }),
};
const post = fc.record({
	second,
	values: fc.record({
		...values,
		execution_status: fc.constantFrom("idle", "running", "paused", "finished", "deleting"),
		max_iterations: fc.integer({ min: 1, max: 3 }),
	}),
});
const event = fc.oneof(
	fc.record({ id: fc.uuid(), second, isFull: fc.constant(true), values: fc.record(values) }),
	...Object.entries(values).map(([name, value]) =>
		fc.record({ id: fc.uuid(), second, isFull: fc.constant(false), values: fc.record({ [name]: value }) }),
	),
);
const deliveries = fc
	.tuple(fc.array(post, { minLength: 1, maxLength: 3 }), fc.array(event, { minLength: 1, maxLength: 10 }))
	.chain(([posts, events]) =>
		fc.array(
			fc.oneof(
				fc.constantFrom(...posts).map((one): Delivery => ({ post: one })),
				fc.subarray(events, { minLength: 1 }).map((batch): Delivery => ({ batch })),
			),
			{ minLength: 1, maxLength: 10 },
		),
	);

test("whatever arrives late, twice or out of order, each member has the value with the latest time", async () => {
	await fc.assert(
		fc.asyncProperty(deliveries, async (delivered) => {
			const id = randomUUID();
			const model = new Model();
			for (const delivery of delivered) {
				if ("post" in delivery) await service.post(posted(id, delivery.post.second, delivery.post.values));
				else
					await service.batch(
						id,
						delivery.batch.flatMap(({ id, second, values, isFull }) => {
							const members: [string, ExactJson][] = isFull ? [["full_state", values]] : Object.entries(values);
							return members.map(([key, value]) => report(second, key, value, id));
						}),
					);
				model.deliver(delivery);
				const current = await service.record(id);
				const expected = model.record();
				const names = Object.keys(expected ?? {});
				expect(current && Object.fromEntries(names.map((name) => [name, current[name]]))).toEqual(expected);
			}
		}),
		{ numRuns: 150 },
	);
});

test("a record, its changes and a reported deletion end in the same record in every order", async () => {
	const deliveries = [
		["post", posted("", 2, { execution_status: "idle", title: "new" })],
		["batch", report(3, "execution_status", "running")],
		["batch", report(4, "execution_status", "deleting")],
		["batch", report(5, "full_state", { execution_status: "deleting", max_iterations: 7 })],
	] as const;
	for (const order of permutations(deliveries)) {
		const id = randomUUID();
		for (const [kind, json] of order)
			await (kind === "post" ? service.post({ ...json, id }) : service.batch(id, [{ ...json, id: randomUUID() }]));
		expect(await shown(id, "execution_status", "title", "max_iterations")).toEqual(["running", "new", 7]);
	}
});

test("the parts that a later event leaves out stay as they are when an earlier event arrives after it", async () => {
	const stats = (...costs: number[]) => ({
		usage_to_metrics: {
			agent: {
				accumulated_cost: 1,
				...(costs.length > 0 ? { costs: costs.map((cost) => ({ model: "m", cost, timestamp: 1 })) } : {}),
			},
		},
	});
	const events = [report(20, "full_state", { stats: stats(1) }), report(30, "stats", stats())];
	const counts: unknown[] = [];
	for (const order of permutations(events)) {
		const id = randomUUID();
		await service.post(posted(id, 1, {}));
		for (const event of order) await service.batch(id, [event]);
		const [shownStats] = await shown(id, "stats");
		counts.push(shownStats);
	}
	expect(counts).toMatchObject([stats(1), { usage_to_metrics: { agent: { costs: [] } } }]);
});

test("a secret that an event reports is in the record redacted if there is no key, and a placeholder changes nothing", async () => {
	const id = randomUUID();
	await service.post(posted(id, 1, { agent_state: { note: "n" } }));
	const hidden = "**********";
	for (const [second, session] of [
		[2, "a session"],
		[3, hidden],
		[4, "another session"],
	] as const) {
		await service.batch(id, [
			report(second, "agent_state", { acp_session_id: session, at: `https://u:p@h/${second}` }),
		]);
		expect(await shown(id, "agent_state")).toEqual([{ acp_session_id: hidden, at: `https://${hidden}@h/${second}` }]);
	}
	// The sender's placeholder stands for a value that is not there.
	const other = randomUUID();
	await service.post(posted(other, 1, { agent_state: { note: "n" } }));
	await service.batch(other, [report(2, "agent_state", { acp_session_id: hidden, note: "m" })]);
	expect(await shown(other, "agent_state")).toEqual([{ note: "m" }]);
	// Events that arrive before the first record.
	const late = randomUUID();
	await service.batch(late, [report(2, "agent_state", { acp_session_id: "a session" })]);
	await service.post(posted(late, 1, { agent_state: {} }));
	expect(await shown(late, "agent_state")).toEqual([{ acp_session_id: hidden }]);
});

test("a late batch does not change a newer record, and its events are stored", async () => {
	const id = randomUUID();
	await service.post(posted(id, 5, { execution_status: "finished" }));
	const late = await service.batch(id, [report(4, "execution_status", "running")]);
	expect(late).toEqual({ stored: 1, updateSequence: undefined });
	expect(await shown(id, "execution_status")).toEqual(["finished"]);
	// An older record does not become current. To a newer one, later state updates are applied.
	await service.batch(id, [report(9, "execution_status", "error")]);
	await service.post(posted(id, 3, { execution_status: "idle", title: "old" }));
	expect(await shown(id, "execution_status", "title")).toEqual(["error", null]);
	await service.post(posted(id, 7, { execution_status: "idle", title: "new" }));
	expect(await shown(id, "execution_status", "title")).toEqual(["error", "new"]);
	const updates = (await service.updates()).filter(({ conversationId }) => conversationId === id);
	const statuses = updates.map((update) => [update.origin, service.shown(update).execution_status]);
	const { POSTED, EVENTS } = UpdateOrigin;
	expect(statuses).toEqual([
		[POSTED, "finished"],
		[EVENTS, "error"],
		[POSTED, "idle"],
		[POSTED, "idle"],
		[EVENTS, "error"],
	]);
});

test("state updates that break rules are stored and logged, and the others are applied", async () => {
	const id = randomUUID();
	service.logged.length = 0;
	await service.post(posted(id, 1, {}));
	const batch = [
		report(2, "full_state", { max_iterations: 0, tags: { UPPER: "x" }, title: "t", no_member: 1 }),
		report(3, "execution_status", "sleeping"),
		report(2, "execution_status", "running"),
		report(2, "created_at", "2020-01-01T00:00:00Z"),
		report(2, "no_member", 1),
	];
	expect(await service.batch(id, batch)).toMatchObject({ stored: 5, updateSequence: expect.any(BigInt) });
	expect(service.logged).toEqual([
		["record.max_iterations", "record.tags", "record.execution_status"],
		{ greater_than: 1, value_error: 1, enum: 1 },
	]);
	const names = ["max_iterations", "tags", "title", "execution_status", "created_at", "no_member"];
	expect(await shown(id, ...names)).toEqual([500, {}, "t", "running", undefined, undefined]);
	service.logged.length = 0;
	// The same batch again logs nothing.
	expect(await service.batch(id, batch)).toEqual({ stored: 0, updateSequence: undefined });
	expect(service.logged).toEqual([]);
});

test("the first record is made from the latest valid full state and the updates before and after it", async () => {
	const id = randomUUID();
	const agent = { kind: "ACPAgent", acp_command: ["acp"] };
	const workspace = { kind: "LocalWorkspace", working_dir: "/workspace" };
	await service.batch(id, [report(8, "tags", { reported: "late" }), report(1, "execution_status", "error")]);
	expect(await service.record(id)).toBeUndefined();
	await service.batch(id, [
		report(5, "full_state", { agent: {}, workspace: {} }),
		report(4, "full_state", { agent, workspace, execution_status: "idle", tags: {}, leaf_event_id: "leaf" }),
		report(6, "execution_status", "running"),
	]);
	const names = ["id", "execution_status", "tags", "leaf_event_id", "max_iterations", "created_at"];
	expect(await shown(id, ...names)).toEqual([id, "running", { reported: "late" }, "leaf", 500, undefined]);
	expect((await service.updates()).filter(({ conversationId }) => conversationId === id)).toHaveLength(1);
	await service.post(posted(id, 7, { execution_status: "paused" }));
	expect(await shown(id, "execution_status", "tags")).toEqual(["paused", { reported: "late" }]);
});

test("a placeholder in a state update keeps the present value, also under an alias", async () => {
	await using service = await LiveService.open([]);
	const id = randomUUID();
	const llm = { model: "m", api_key: null, extra_headers: { note: "n" }, gateway_extra: 1 };
	const agent = { kind: "Agent", llm: { ...llm, litellm_extra_body: { mode: "x", deep: [{ y: 1 }] } } };
	await service.post(posted(id, 1, { agent }));
	const before = await service.record(id);
	const hidden = "**********";
	const shownLlm = { model: "m", api_key: hidden, extra_headers: { note: hidden }, gateway_extra: 1 };
	const state = {
		agent: { kind: "Agent", llm: { ...shownLlm, litellm_extra_body: { mode: hidden, deep: [{ y: 1 }] } } },
	};
	await service.batch(id, [report(2, "full_state", state)]);
	expect((await service.record(id))?.agent).toMatchObject({
		llm: { api_key: null, proxylib_extra_body: { mode: "x", deep: [{ y: 1 }] } },
	});
	expect(before?.agent).toMatchObject({ llm: { proxylib_extra_body: { mode: "x" } } });
});

test("a state update of another kind does not keep secrets and members of the present kind", async () => {
	await using service = await LiveService.open([createSecretKey(randomBytes(32))]);
	const id = randomUUID();
	const server = (auth: ExactJsonObject) => ({
		kind: "ACPAgent",
		acp_command: ["acp"],
		mcp_config: { server: { url: "https://host", auth } },
	});
	const analyzer = { kind: "VendorRiskAnalyzer", api_key: null, policy_id: null };
	const agent = server({ strategy: "api_key", value: "an API key" });
	await service.post(posted(id, 1, { agent, security_analyzer: analyzer }));
	const state = {
		agent: server({ strategy: "bearer", value: "**********" }),
		security_analyzer: { kind: "LLMSecurityAnalyzer" },
	};
	await service.batch(id, [report(2, "full_state", state)]);
	const after = await service.record(id);
	expect(after?.security_analyzer).toEqual({ kind: "LLMSecurityAnalyzer" });
	expect(after?.agent).toMatchObject({ mcp_config: { server: { url: "https://host" } } });
	expect(JSON.stringify(after)).not.toContain("an API key");
	// An alias of the kind is the same kind.
	const risk = { kind: "VendorRiskAnalyzer", api_key: "a key" };
	await service.post(posted(id, 3, { security_analyzer: risk }));
	const vendor = { kind: "GraySwanAnalyzer", api_key: "**********", timeout: 5 };
	await service.batch(id, [report(4, "security_analyzer", vendor)]);
	expect((await service.record(id))?.security_analyzer).toMatchObject({ ...risk, timeout: 5 });
});

test("placeholders keep secrets over several state updates", async () => {
	await using service = await LiveService.open([createSecretKey(randomBytes(32))]);
	const id = randomUUID();
	const agent = (model: string, apiKey: string, user: string) => ({
		kind: "Agent",
		llm: { model, api_key: apiKey, base_url: `https://${user}@host/` },
	});
	const hidden = "**********";
	await service.post(posted(id, 1, { agent: agent("first", "key 1", "user:1") }));
	await service.batch(id, [report(2, "agent", agent("second", hidden, "user:2"))]);
	await service.batch(id, [report(3, "agent", agent("third", hidden, "user:3"))]);
	expect((await service.record(id))?.agent).toMatchObject(agent("third", "key 1", "user:3"));
	await service.batch(id, [report(4, "agent", agent("fourth", "key 2", "user:4"))]);
	await service.batch(id, [report(5, "agent", agent("fifth", hidden, "user:5"))]);
	expect((await service.record(id))?.agent).toMatchObject(agent("fifth", "key 2", "user:5"));
});

test("a state update keeps what it omits as an earlier one in the same batch reported it", async () => {
	await using service = await LiveService.open([createSecretKey(randomBytes(32))]);
	const id = randomUUID();
	const agent = (model: string, apiKey: string) => ({ kind: "Agent", llm: { model, api_key: apiKey } });
	const stats = (cost: number, lists: ExactJsonObject) => ({
		usage_to_metrics: { agent: { model_name: "m", accumulated_cost: cost, ...lists } },
	});
	const costs = [{ model: "m", cost: 1, timestamp: 1 }];
	const batch = [
		report(4, "stats", stats(2, {})),
		report(3, "agent", agent("second", "**********")),
		report(2, "full_state", { agent: agent("first", "key"), stats: stats(1, { costs }) }),
	];
	const expected = [agent("second", "key"), stats(2, { costs })];
	await service.post(posted(id, 1, {}));
	await service.batch(id, batch);
	expect(await shownOf(service, id)).toMatchObject(expected);
	// The result is the same when they are applied to a record that is posted late.
	const late = randomUUID();
	await service.batch(late, batch);
	await service.post(posted(late, 1, {}));
	expect(await shownOf(service, late)).toMatchObject(expected);
});

async function shownOf(service: LiveService, id: string): Promise<unknown[]> {
	const { agent, stats } = (await service.record(id)) ?? {};
	return [agent, stats];
}

test("a batch is also applied to a record that is posted while the batch is appended", async () => {
	const id = randomUUID();
	let meanwhile: (() => Promise<void>) | undefined;
	await using service = await LiveService.open([], (store) => ({
		...store,
		appendEvents: async (batch) => {
			await meanwhile?.();
			meanwhile = undefined;
			return await store.appendEvents(batch);
		},
		getRecordState: (...of) => store.getRecordState(...of),
		listUnapplied: (limit) => store.listUnapplied(limit),
		events: store.events,
	}));
	for (const execution_status of ["idle", "paused"]) {
		meanwhile = () => service.post(posted(id, execution_status === "idle" ? 1 : 3, { execution_status }));
		const second = execution_status === "idle" ? 2 : 4;
		const appended = await service.batch(id, [report(second, "execution_status", "running")]);
		expect(appended).toMatchObject({ stored: 1, updateSequence: expect.any(BigInt) });
		expect((await service.record(id))?.execution_status).toBe("running");
	}
});

test("the first record that events make includes a state update that another replica stores meanwhile", async () => {
	const id = randomUUID();
	let meanwhile: (() => Promise<unknown>) | undefined;
	await using one = await LiveService.open([], (store) => ({
		...store,
		appendEvents: async (batch) => {
			const before = meanwhile;
			meanwhile = undefined;
			await before?.();
			return await store.appendEvents(batch);
		},
		getRecordState: (...of) => store.getRecordState(...of),
		events: store.events,
	}));
	const { store } = one;
	await using other = await LiveService.open([], undefined, async () => ({ ...store, close: async () => undefined }));
	meanwhile = () => other.batch(id, [report(8, "tags", { reported: "late" })]);
	const agent = { kind: "ACPAgent", acp_command: ["acp"] };
	const workspace = { kind: "LocalWorkspace", working_dir: "/workspace" };
	const full = report(5, "full_state", { agent, workspace, execution_status: "running", tags: {} });
	expect(await one.batch(id, [full])).toEqual({ stored: 1, updateSequence: 1n });
	expect(await one.record(id)).toMatchObject({ execution_status: "running", tags: { reported: "late" } });
});

test("of concurrent batches for one conversation, the one with the latest time holds", async () => {
	const id = randomUUID();
	await service.post(posted(id, 1, {}));
	const seconds = Array.from({ length: 30 }, (_, index) => index + 2);
	await Promise.all(seconds.map((second) => service.batch(id, [report(second, "tags", { second: String(second) })])));
	expect(await shown(id, "tags")).toEqual([{ second: "31" }]);
});

test("settleAll, and the next batch, apply events that were not applied before the process ended", async () => {
	const id = randomUUID();
	await service.post(posted(id, 1, {}));
	await service.batch(id, [report(5, "execution_status", "running")]);
	// The process ended before it had applied the event to this record.
	await service.postUnsettled(posted(id, 3, { execution_status: "paused" }));
	expect(await shown(id, "execution_status")).toEqual(["paused"]);
	await service.events.applyAllUnappliedEvents();
	expect(await shown(id, "execution_status")).toEqual(["running"]);
	await service.postUnsettled(posted(id, 4, { execution_status: "paused" }));
	// The next batch settles it as well.
	await service.batch(id, [report(2, "tags", { a: "b" }), report(6, "max_iterations", 7)]);
	expect(await shown(id, "execution_status", "max_iterations", "tags")).toEqual(["running", 7, {}]);
});

test("a conversation that cannot be settled does not prevent settling the others", async () => {
	let failing: string | undefined;
	await using service = await LiveService.open([], (store) => ({
		...store,
		appendEvents: (batch) => store.appendEvents(batch),
		getRecordState: async (id, eventIds) => {
			if (id === failing) throw new ServiceError("internal", "spoilt");
			return await store.getRecordState(id, eventIds);
		},
		listUnapplied: (limit) => store.listUnapplied(limit),
		events: store.events,
	}));
	const ids = [randomUUID(), randomUUID()];
	for (const id of ids) {
		await service.batch(id, [report(5, "execution_status", "running")]);
		await service.postUnsettled(posted(id, 3, {}));
	}
	failing = ids[0];
	await expect(service.events.applyAllUnappliedEvents()).rejects.toMatchObject({
		kind: "internal",
		conversationId: failing,
	});
	const statuses = ids.map(async (id) => (await service.record(id))?.execution_status);
	expect(await Promise.all(statuses)).toEqual(["idle", "running"]);
});

test("all stored events that are later than a record are applied to it, however many", async () => {
	const id = randomUUID();
	const batch = Array.from({ length: 1_100 }, (_, index) => report(2, "tags", { index: String(index) }));
	await service.batch(id, [report(2, "max_iterations", 7), ...batch]);
	await service.post(posted(id, 1, {}));
	expect(await shown(id, "tags", "max_iterations")).toEqual([{ index: "1099" }, 7]);
	expect((await service.updates()).filter(({ conversationId }) => conversationId === id)).toHaveLength(2);
});

test("state updates do not change an unreadable record, and are stored", async () => {
	let unreadable = false;
	await using service = await LiveService.open([], (store) => ({
		...store,
		appendEvents: (batch) => store.appendEvents(batch),
		getRecordState: async (...of) => {
			const state = await store.getRecordState(...of);
			const current = state.current && { ...state.current, record: { unreadable: "spoilt" } };
			return unreadable ? { ...state, current } : state;
		},
		events: store.events,
	}));
	const id = randomUUID();
	await service.post(posted(id, 1, {}));
	unreadable = true;
	const kept = await service.batch(id, [report(2, "execution_status", "running")]);
	expect([kept, service.logged]).toEqual([{ stored: 1, updateSequence: undefined }, ["spoilt"]]);
	unreadable = false;
	await service.batch(id, [report(3, "max_iterations", 7)]);
	const { execution_status, max_iterations } = (await service.record(id)) ?? {};
	expect([execution_status, max_iterations]).toEqual(["idle", 7]);
});

test("batches at the same time, of a local time that occurs twice, keep their order", async () => {
	await using berlin = await LiveService.open([], undefined, undefined, "Europe/Berlin");
	const id = randomUUID();
	const event = { source: "agent", kind: "MessageEvent" };
	const post = (time: string) => berlin.batch(id, [{ ...event, id: time, timestamp: `2026-10-25T${time}:00` }]);
	await Promise.all(["02:55", "02:20", "02:50"].map(post));
	// Later batches keep it, too, whatever comes between them. None does after an event that is later than both.
	for (const time of ["01:10", "02:52", "03:10", "02:54"]) await post(time);
	const entries = await berlin.store.events.list({ after: 0n, limit: 10 });
	const happened = entries.map(({ happenedAt }) => new Date(Number(happenedAt / 1000n)).toISOString().slice(11, 16));
	expect(happened).toEqual(["00:55", "01:20", "01:50", "23:10", "01:52", "02:10", "00:54"]);
});

test("a state update of a local time that occurs twice is applied in the order of what is stored", async () => {
	await using berlin = await LiveService.open([], undefined, undefined, "Europe/Berlin");
	const sent = record({ created_at: "2026-10-24T00:00:00Z", updated_at: "2026-10-24T00:00:00Z" });
	await berlin.post(JSON.stringify(sent));
	const event = { source: "environment", kind: "ConversationStateUpdateEvent", key: "execution_status" };
	for (const [time, value] of [
		["02:40", "paused"],
		["02:55", "paused"],
		["02:20", "finished"],
	])
		await berlin.batch(String(sent.id), [
			{ ...event, id: time ?? "", timestamp: `2026-10-25T${time}:00`, value: value ?? "" },
		]);
	expect((await berlin.record(String(sent.id)))?.execution_status).toBe("finished");
});

test("the texts of a batch are handed to the index if all of its events are new and none has a secret", async () => {
	await using own = await LiveService.open([createSecretKey(randomBytes(32))]);
	const id = randomUUID();
	const said = (eventId: string, text: string): ExactJsonObject => ({
		...{ id: eventId, timestamp: at(1), source: "user", kind: "MessageEvent" },
		llm_message: { role: "user", content: [{ type: "text", text }] },
	});
	const [first, second] = [said("1", "begin"), said("2", "go on")];
	await own.batch(id, [
		first,
		{ ...said("3", ""), kind: "PauseEvent", critic_result: { score: 0.5, message: "fair" } },
	]);
	await own.batch(id, [first, second]);
	await own.batch(id, [said("4", "secret"), { ...said("5", "token"), api_key: "sk-1234567890" }]);
	await own.batch(id, [report(2, "title", "The title", "6"), said("7", "at last")]);
	const nothing = { criticResult: undefined };
	expect(own.indexed).toEqual([
		[
			id,
			2n,
			[
				{ texts: ["begin"], ...nothing },
				{ texts: [], criticResult: { value: 0.5, comment: "fair" } },
			],
		],
		[id, 7n, [{ texts: [] }, { texts: ["at last"], ...nothing }]],
	]);
});
