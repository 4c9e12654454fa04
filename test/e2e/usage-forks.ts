import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { UsageStep } from "../../gen/conversations/v1/conversation_report_service_pb.js";
import { EVENT_WEBHOOK, type Protocol, postWebhook, reportClient, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { Random } from "../support/random.ts";
import { KEY, type TestService } from "../support/service.ts";

/** A call of a model. */
export interface Call {
	readonly usageId: string;
	readonly id: string;
	/** Seconds of Unix time. */
	readonly at: number;
	/** Not listed if it is 0. */
	readonly cost: number;
	readonly tokens: number;
	readonly hasEvent: boolean;
}

export interface Sent {
	readonly path: string;
	readonly body: string;
}

export const HOUR = 3600;
export const BEGAN = Date.parse("2026-11-20T10:05:00Z") / 1000;

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

export const time = (seconds: number): string => new Date(seconds * 1000).toISOString();

/** Posts of a conversation. */
export class Posts {
	readonly id: string;
	readonly #members: JsonObject;

	constructor(members: JsonObject = {}, id: string = randomUUID()) {
		this.id = id;
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
export type Expected = Map<string, readonly [cost: number, tokens: number, calls: number]>;

/** Adds calls; a cost counts at its time, the tokens at that of the event, or when a post showed them. */
export function expectCalls(
	expected: Expected,
	id: string,
	calls: readonly Call[],
	shownAt: (call: Call) => number,
): void {
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

/** Sends posts, one after the other. */
export async function send(service: TestService, posts: readonly Sent[]): Promise<void> {
	for (const { path, body } of posts) expect((await postWebhook(service, KEY, body, {}, path)).status).toBe(200);
}

/** Reads the usage of conversations. */
export async function usageOf(
	service: TestService,
	ids: ReadonlySet<string>,
	protocol: Protocol = "gRPC",
): Promise<Expected> {
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

/** Returns a call, by default without a cost and an event. */
export const call = (of: Partial<Call> & Pick<Call, "at" | "tokens">): Call => ({
	...{ usageId: "agent", id: randomUUID(), cost: 0, hasEvent: false },
	...of,
});

/** Posts of a source and a fork of it, and the own calls of the fork. */
export function forkOf({
	isReset,
	ofSource,
	own,
}: {
	isReset: boolean;
	ofSource: readonly Call[];
	own: readonly Call[];
}) {
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

/**
 * Sends posts of sources and their forks in any order, with repeats, and asserts that each counts its own calls.
 *
 * @param rounds number of sources and forks
 * @returns the service that goes on, because it is restarted in between
 */
export async function assertForkLaw(started: TestService, rounds: number): Promise<TestService> {
	let service = started;
	const random = Random.ofTest();
	const expected: Expected = new Map();
	const ids = new Set<string>();
	for (let n = 0; n < rounds; n++) {
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
		// Without its first full state, only costs tell what a fork took over.
		const mayBeAlone = isReset || ofSource.every(({ cost }) => cost > 0);
		const posts = [...sourcePosts, ...(mayBeAlone && random.integer(0, 2) === 0 ? [last] : forkPosts)];
		const isAlone = posts.length === sourcePosts.length + 1;
		random.shuffle(posts);
		await send(
			service,
			posts.flatMap((post) => (random.integer(0, 3) === 0 ? [post, post] : [post])),
		);
		// The view follows what was sent so far, or more at once, also in a later run of the service.
		if (random.integer(0, 3) === 0) await usageOf(service, ids);
		if (n === Math.floor(rounds / 2)) service = await service.restart();
		expectCalls(expected, source.id, ofSource, () => BEGAN + 600);
		const ownCalls = isAlone ? own.map((one) => ({ ...one, hasEvent: false })) : own;
		expectCalls(expected, fork.id, ownCalls, () => (isAlone ? began + 3 * HOUR : began + 2 * HOUR + 60));
		for (const { id } of [source, fork]) ids.add(id);
	}
	expect(sortedOf(await usageOf(service, ids))).toEqual(sortedOf(expected));
	return service;
}

/**
 * Returns the costs of each hour, and the tokens and calls of each usage id: when calls without an event count depends on the
 * order of the posts.
 */
function sortedOf(usage: Expected) {
	const totals = new Map<string, readonly [tokens: number, calls: number]>();
	const costs: string[] = [];
	for (const [key, [cost, tokens, calls]] of usage) {
		const [id, usageId, hour] = JSON.parse(key);
		const total = totals.getOrInsert(JSON.stringify([id, usageId]), [0, 0]);
		totals.set(JSON.stringify([id, usageId]), [total[0] + tokens, total[1] + calls]);
		if (cost !== 0) costs.push(JSON.stringify([id, usageId, hour, cost]));
	}
	const spent = [...totals].filter(([, [tokens, calls]]) => tokens + calls > 0).sort();
	return { costs: costs.sort(), spent };
}
