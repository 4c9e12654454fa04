import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationStatsSchema, MetricsSchema } from "../../gen/conversations/v1/stats_pb.js";
import { costUnits, metricsOf, sumOfCosts } from "../../src/record/stats.ts";
import { summarize } from "../../src/record/summary.ts";

test.each([
	[[], 0],
	[Array.from({ length: 10 }, () => 0.1), 1],
	[[0.1, 0.2], 0.3],
	[[1e-9, 4e-10], 1e-9],
	[[1e300, 1], 9_223_372_036.854_776],
	[[Number.NaN], 0],
])("the sum of the costs %j is %d", (costs, sum) => {
	expect(sumOfCosts(costs)).toBe(sum);
});

test("costs add up to the same in each order", () => {
	const cost = fc.double({ min: 0, max: 1e6, noNaN: true });
	fc.assert(
		fc.property(fc.array(cost), fc.infiniteStream(fc.nat()), (costs, order) => {
			const shuffled = costs
				.map((one) => [order.next().value ?? 0, one] as const)
				.sort(([a], [b]) => a - b)
				.map(([, one]) => one);
			expect(sumOfCosts(shuffled)).toBe(sumOfCosts(costs));
			expect(costUnits(sumOfCosts(costs))).toBe(costs.reduce((sum, one) => sum + costUnits(one), 0n));
		}),
	);
});

const usage = (responseId: string, promptTokens: bigint) => ({ model: "m", responseId, promptTokens });
const cost = (amount: number, timestamp: number) => ({ model: "m", cost: amount, timestamp });
const SHARED = create(MetricsSchema, {
	...{ modelName: "m", accumulatedCost: 0.1, accumulatedTokenUsage: { promptTokens: 10n } },
	...{ costs: [cost(0.1, 1)], tokenUsages: [usage("same-1", 10n)], responseLatencies: [{ responseId: "same-1" }] },
});

test("metrics that two usage ids share are those of the first one", () => {
	const stats = create(ConversationStatsSchema, { usageToMetrics: { condenser: SHARED, agent: SHARED } });
	expect(metricsOf(stats)).toEqual([["agent", SHARED]]);
	const { accumulatedCost, tokens } = summarize(create(ConversationInfoSchema, { stats }));
	expect([accumulatedCost, tokens?.promptTokens]).toEqual([0.1, 10n]);
});

test("a call of another usage id is counted once, and what is beside it stays", () => {
	const more = create(MetricsSchema, {
		...{ modelName: "m", accumulatedCost: 0.4, accumulatedTokenUsage: { promptTokens: 37n } },
		costs: [cost(0.1, 1), cost(0.3, 2)],
		tokenUsages: [usage("same-1", 10n), usage("same-1", 7n), usage("own", 20n)],
		responseLatencies: [{ responseId: "same-1" }, { responseId: "same-1" }, { responseId: "own" }],
	});
	const stats = create(ConversationStatsSchema, { usageToMetrics: { b: more, a: SHARED } });
	const own = create(MetricsSchema, {
		...{ modelName: "m", accumulatedCost: 0.3, accumulatedTokenUsage: { promptTokens: 27n } },
		costs: [cost(0.3, 2)],
		tokenUsages: [usage("same-1", 7n), usage("own", 20n)],
		responseLatencies: [{ responseId: "same-1" }, { responseId: "own" }],
	});
	expect(metricsOf(stats)).toEqual([
		["a", SHARED],
		["b", own],
	]);
});

test("calls without an id, and those of one usage id, are all counted", () => {
	const unnamed = create(MetricsSchema, { tokenUsages: [usage("", 10n)], costs: [cost(0.1, 1)], accumulatedCost: 0.1 });
	const session = create(MetricsSchema, { tokenUsages: [usage("sess", 1n), usage("sess", 1n)] });
	const stats = create(ConversationStatsSchema, { usageToMetrics: { a: unnamed, b: unnamed, c: session, d: SHARED } });
	expect(metricsOf(stats)).toEqual([
		["a", unnamed],
		["b", unnamed],
		["c", session],
		["d", SHARED],
	]);
});
