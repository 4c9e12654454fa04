import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PROTOCOLS } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { startTestService, type TestService } from "../support/service.ts";
import {
	assertForkLaw,
	BEGAN,
	call,
	type Expected,
	expectCalls,
	forkOf,
	HOUR,
	Posts,
	send,
	time,
	usageOf,
} from "./usage-forks.ts";

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
		await send(service, [...sourcePosts, ...forkPosts]);
		const expected: Expected = new Map();
		expectCalls(expected, source.id, ofSource, () => BEGAN + 600);
		expectCalls(expected, fork.id, own, () => began + 2 * HOUR + 60);
		for (const protocol of PROTOCOLS)
			expect(await usageOf(service, new Set([source.id, fork.id]), protocol)).toEqual(expected);
	});

	test.each([
		["reset", true],
		["kept", false],
	])("a fork of which only the last record arrives counts its own calls (metrics %s)", async (_, isReset) => {
		const ofSource = [call({ at: BEGAN + 60, cost: 0.5, tokens: 1_000 })];
		const own = [call({ at: BEGAN + HOUR + 60, cost: 0, tokens: 50 })];
		const { fork, sourcePosts, last, began } = forkOf({ isReset, ofSource, own });
		await send(service, [...sourcePosts, last]);
		const expected: Expected = new Map();
		expectCalls(expected, fork.id, own, () => began + 3 * HOUR);
		for (const protocol of PROTOCOLS) expect(await usageOf(service, new Set([fork.id]), protocol)).toEqual(expected);
	});

	test.each(["response-1", "response\u0000 \\ 2"])(
		"tokens and calls count at the time of their event, also when it arrives after the record (%j)",
		async (id) => {
			const own = [call({ at: BEGAN + 60, tokens: 70, hasEvent: true, id })];
			const posts = new Posts();
			await send(service, [posts.record(BEGAN + 4 * HOUR, BEGAN, own)]);
			const ids = new Set([posts.id]);
			const before = await usageOf(service, ids);
			expect([...before.keys()].map((key) => JSON.parse(key)[2])).toEqual([time(BEGAN - (BEGAN % HOUR) + 4 * HOUR)]);
			await send(
				service,
				own.map((one) => posts.call(one)),
			);
			const expected: Expected = new Map();
			expectCalls(expected, posts.id, own, () => 0);
			for (const protocol of PROTOCOLS) expect(await usageOf(service, ids, protocol)).toEqual(expected);
		},
	);

	test("conversations that name each other as their source count their own calls", async () => {
		const one = new Posts();
		const two = new Posts({ forked_from_conversation_id: one.id });
		const again = new Posts({ forked_from_conversation_id: two.id }, one.id);
		const calls = [call({ at: BEGAN + 60, cost: 0.5, tokens: 10 })];
		const ids = new Set([one.id, two.id]);
		for (const n of [600, 601, 602, 603]) {
			await send(service, [(n % 2 === 0 ? again : two).record(BEGAN + n, BEGAN, calls)]);
			// Each is derived by itself.
			await usageOf(service, ids);
		}
		const expected: Expected = new Map();
		for (const id of ids) expectCalls(expected, id, calls, () => BEGAN + 60);
		expect(await usageOf(service, ids)).toEqual(expected);
	});

	test("whatever arrives in whatever order, with repeats, conversations and forks count their own calls", async () => {
		service = await assertForkLaw(service, 40);
	});
});
