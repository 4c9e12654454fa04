import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { UsageStep } from "../../gen/conversations/v1/conversation_report_service_pb.js";
import { EVENT_WEBHOOK, PROTOCOLS, postWebhook, reportClient, WEBHOOK } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { record } from "../support/fixtures.ts";
import { Random } from "../support/random.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

/** A call of a model. */
interface Call {
	readonly usageId: string;
	readonly id: string;
	/** Seconds of Unix time. */
	readonly at: number;
	/** Not listed if it is 0. */
	readonly cost: number;
	readonly tokens: number;
	readonly hasEvent: boolean;
}

interface Sent {
	readonly path: string;
	readonly body: string;
}

const HOUR = 3600;
const ROUNDS = Number(process.env.USAGE_ROUNDS ?? 40);
const BEGAN = Date.parse("2026-11-20T10:05:00Z") / 1000;

/** Returns stats after calls, as the agent server makes them. */
function statsAfter(calls: readonly Call[], withLists = true): JsonObject {
	const usages = [...new Set(calls.map(({ usageId }) => usageId))].map((usageId) => {
		const own = calls.filter((call) => call.usageId === usageId);
		const lists = {
			costs: own.filter(({ cost }) => cost > 0).map(({ cost, at }) => ({ model: "m", cost, timestamp: at })),
			token_usages: own.map(({ id, tokens }) => ({ model: "m", prompt_tokens: tokens, response_id: id })),
			response_latencies: own.map(({ id }) => ({ model: "m", latency: 1, response_id: id })),
		};
		const accumulated_token_usage = { model: "m", prompt_tokens: own.reduce((sum, { tokens }) => sum + tokens, 0) };
		const accumulated_cost = own.reduce((sum, { cost }) => sum + cost, 0);
		return [usageId, { model_name: "m", accumulated_cost, accumulated_token_usage, ...(withLists ? lists : {}) }];
	});
	return { usage_to_metrics: Object.fromEntries(usages) };
}

const time = (seconds: number): string => new Date(seconds * 1000).toISOString();

/** Posts of a conversation. */
class Posts {
	readonly id = randomUUID();
	readonly #members: JsonObject;

	constructor(members: JsonObject = {}) {
		this.#members = members;
	}

	record(at: number, began: number, calls: readonly Call[], withLists = true): Sent {
		const members = { ...this.#members, created_at: time(began), updated_at: time(at) };
		const stats = statsAfter(calls, withLists);
		return { path: WEBHOOK, body: JSON.stringify({ ...record({ id: this.id }), ...members, stats }) };
	}

	fullState(at: number, calls: readonly Call[]): Sent {
		const { id: _, ...state } = record();
		return this.event(at, {
			kind: "ConversationStateUpdateEvent",
			source: "environment",
			key: "full_state",
			value: { ...state, id: this.id, execution_status: "running", stats: statsAfter(calls) },
		});
	}

	stats(at: number, calls: readonly Call[]): Sent {
		const value = statsAfter(calls, false);
		return this.event(at, { kind: "ConversationStateUpdateEvent", source: "environment", key: "stats", value });
	}

	/** The event of a call. */
	call({ at, id }: Call): Sent {
		return this.event(at, { kind: "MessageEvent", source: "agent", llm_response_id: id, llm_message: MESSAGE });
	}

	event(at: number, members: JsonObject): Sent {
		const body = JSON.stringify([{ id: randomUUID(), timestamp: time(at), ...members }]);
		return { path: `${EVENT_WEBHOOK}/${this.id}`, body };
	}
}

const MESSAGE = { role: "assistant", content: [{ type: "text", text: "x" }] };

/** The usage that a report must have: cost, tokens and calls, by conversation, usage id and hour. */
type Expected = Map<string, readonly [cost: number, tokens: number, calls: number]>;

/** Adds calls; a cost counts at its time, the tokens at that of the event, or when a post showed them. */
function expectCalls(expected: Expected, id: string, calls: readonly Call[], shownAt: (call: Call) => number): void {
	const add = (usageId: string, at: number, cost: number, tokens: number, count: number) => {
		const key = JSON.stringify([id, usageId, time(at - (at % HOUR))]);
		const [c, t, n] = expected.get(key) ?? [0, 0, 0];
		expected.set(key, [Number((c + cost).toFixed(9)), t + tokens, n + count]);
	};
	for (const call of calls) {
		if (call.cost > 0) add(call.usageId, call.at, call.cost, 0, 0);
		add(call.usageId, call.hasEvent ? call.at : shownAt(call), 0, call.tokens, 1);
	}
}

describe.each(ENGINES)("with $engine", ({ open }) => {
	let databases: EngineDatabases;
	let service: TestService;
	beforeAll(async () => {
		databases = await open();
		service = await startTestService(await databases.create());
	});
	afterAll(async () => {
		await service[Symbol.asyncDispose]();
		await databases[Symbol.asyncDispose]();
	});

	async function send(posts: readonly Sent[]): Promise<void> {
		for (const { path, body } of posts) expect((await postWebhook(service, KEY, body, {}, path)).status).toBe(200);
	}

	async function usageOf(ids: ReadonlySet<string>, protocol = PROTOCOLS[0] ?? "gRPC"): Promise<Expected> {
		const groupBy = ["conversation", "usage_id"];
		const { rows } = await reportClient(service, protocol, KEY).reportUsage({ step: UsageStep.HOUR, groupBy });
		const own = rows.filter(({ group }) => ids.has(String(group[0])));
		return new Map(
			own.map(({ start, group, usage }) => [
				JSON.stringify([...group, time(Number(start?.seconds ?? 0n))]),
				[usage?.cost ?? 0, Number(usage?.tokens?.promptTokens ?? 0n), Number(usage?.calls ?? 0n)],
			]),
		);
	}

	const call = (of: Partial<Call> & Pick<Call, "at" | "tokens">): Call => ({
		...{ usageId: "agent", id: randomUUID(), cost: 0, hasEvent: false },
		...of,
	});

	/** Posts of a source and a fork of it, and the own calls of the fork. */
	function forkOf({ isReset, ofSource, own }: { isReset: boolean; ofSource: readonly Call[]; own: readonly Call[] }) {
		const source = new Posts();
		const fork = new Posts({ forked_from_conversation_id: source.id });
		const began = BEGAN + HOUR;
		const taken = isReset ? [] : ofSource;
		const all = [...taken, ...own];
		const sourcePosts = [
			...ofSource.filter(({ hasEvent }) => hasEvent).map((one) => source.call(one)),
			source.record(BEGAN + 600, BEGAN, ofSource),
		];
		const last = fork.record(began + 3 * HOUR, began, all);
		const forkPosts = [
			fork.fullState(began + 1, taken),
			...own.filter(({ hasEvent }) => hasEvent).map((one) => fork.call(one)),
			fork.stats(began + 2 * HOUR, all),
			fork.fullState(began + 2 * HOUR + 60, all),
			last,
		];
		return { source, fork, sourcePosts, forkPosts, last, began };
	}

	test.each([
		["with metrics that were reset", true],
		["with metrics that were kept", false],
	])("a fork %s counts its own calls, in the order of the agent server", async (_, isReset) => {
		const ofSource = isReset
			? [call({ at: BEGAN + 60, cost: 0.5, tokens: 1_000 })]
			: [call({ at: BEGAN + 60, cost: 0, tokens: 1_000 })];
		const own = isReset
			? [call({ at: BEGAN + HOUR + 60, cost: 0, tokens: 20, usageId: "condenser" })]
			: [call({ at: BEGAN + HOUR + 60, cost: 0.2, tokens: 50 })];
		const { source, fork, sourcePosts, forkPosts, began } = forkOf({ isReset, ofSource, own });
		await send([...sourcePosts, ...forkPosts]);
		const expected: Expected = new Map();
		expectCalls(expected, source.id, ofSource, () => BEGAN + 600);
		expectCalls(expected, fork.id, own, () => began + 2 * HOUR + 60);
		for (const protocol of PROTOCOLS) expect(await usageOf(new Set([source.id, fork.id]), protocol)).toEqual(expected);
	});

	test.each([
		["reset", true],
		["kept", false],
	])("a fork of which only the last record arrives counts its own calls (metrics %s)", async (_, isReset) => {
		const ofSource = [call({ at: BEGAN + 60, cost: 0.5, tokens: 1_000 })];
		const own = [call({ at: BEGAN + HOUR + 60, cost: 0, tokens: 50 })];
		const { fork, sourcePosts, last, began } = forkOf({ isReset, ofSource, own });
		await send([...sourcePosts, last]);
		const expected: Expected = new Map();
		expectCalls(expected, fork.id, own, () => began + 3 * HOUR);
		for (const protocol of PROTOCOLS) expect(await usageOf(new Set([fork.id]), protocol)).toEqual(expected);
	});

	test("tokens and calls count at the time of their event, also when it arrives after the record", async () => {
		const own = [call({ at: BEGAN + 60, cost: 0.25, tokens: 70, hasEvent: true })];
		const posts = new Posts();
		await send([posts.record(BEGAN + 4 * HOUR, BEGAN, own)]);
		const ids = new Set([posts.id]);
		const before = await usageOf(ids);
		expect([...before.keys()].map((key) => JSON.parse(key)[2])).toEqual([
			time(BEGAN - (BEGAN % HOUR)),
			time(BEGAN - (BEGAN % HOUR) + 4 * HOUR),
		]);
		await send(own.map((one) => posts.call(one)));
		const expected: Expected = new Map();
		expectCalls(expected, posts.id, own, () => 0);
		for (const protocol of PROTOCOLS) expect(await usageOf(ids, protocol)).toEqual(expected);
	});

	test("whatever arrives in whatever order, with repeats, conversations and forks count their own calls", async () => {
		const random = Random.ofTest();
		const expected: Expected = new Map();
		const ids = new Set<string>();
		for (let n = 0; n < ROUNDS; n++) {
			const someCalls = (from: number): Call[] =>
				Array.from({ length: random.integer(0, 4) }, (_, i) =>
					call({
						at: from + 60 * (i + 1),
						cost: random.pick([0, 0, 0.5, 0.001]) ?? 0,
						tokens: random.integer(1, 1000),
						usageId: random.pick(["agent", "condenser"]) ?? "agent",
						hasEvent: random.integer(0, 2) === 0,
					}),
				);
			const ofSource = someCalls(BEGAN);
			const own = someCalls(BEGAN + HOUR);
			const isReset = random.integer(0, 2) === 0;
			const { source, fork, sourcePosts, forkPosts, began, last } = forkOf({ isReset, ofSource, own });
			// Without its other posts, a fork is judged by its source.
			const posts = [...sourcePosts, ...(random.integer(0, 4) === 0 ? [last] : forkPosts)];
			const isAlone = posts.length === sourcePosts.length + 1;
			random.shuffle(posts);
			await send(posts.flatMap((post) => (random.integer(0, 3) === 0 ? [post, post] : [post])));
			if (random.integer(0, 3) === 0) await usageOf(ids);
			expectCalls(expected, source.id, ofSource, () => BEGAN + 600);
			const ownCalls = isAlone ? own.map((one) => ({ ...one, hasEvent: false })) : own;
			expectCalls(expected, fork.id, ownCalls, () => (isAlone ? began + 3 * HOUR : began + 2 * HOUR + 60));
			for (const { id } of [source, fork]) ids.add(id);
		}
		expect(sortedOf(await usageOf(ids))).toEqual(sortedOf(expected));
	});
});

function sortedOf(usage: Expected) {
	return [...usage].map(([key, value]) => [...JSON.parse(key), value]).sort((a, b) => (String(a) < String(b) ? -1 : 1));
}
