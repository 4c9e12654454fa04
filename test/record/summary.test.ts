import { create, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import type { ConversationStatsSchema } from "../../gen/conversations/v1/stats_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { encodeSummary, summarize } from "../../src/record/summary.ts";

const usage = (promptTokens: bigint, accumulatedCost: number) => ({
	accumulatedCost,
	accumulatedTokenUsage: { promptTokens, completionTokens: 1n },
});

test("sums in a summary that are too large stop at the largest value", () => {
	const record = create(ConversationInfoSchema, {
		stats: { usageToMetrics: { a: usage(2n ** 63n - 1n, 1e308), b: usage(5n, 1e308) } },
	});
	const { tokens, accumulatedCost } = summarize(record);
	expect(tokens).toMatchObject({ promptTokens: 2n ** 63n - 1n, completionTokens: 2n });
	expect(accumulatedCost).toBe(9_223_372_036.854_776);
});

test.each<
	[string, MessageInitShape<typeof ConversationStatsSchema> | undefined, number | undefined, bigint | undefined]
>([
	["no stats", undefined, undefined, undefined],
	["no usage", { usageToMetrics: {} }, undefined, undefined],
	["metrics without figures", { usageToMetrics: { a: {} } }, undefined, undefined],
	["a cost of 0", { usageToMetrics: { a: { accumulatedCost: 0 } } }, 0, undefined],
	["tokens, and no cost", { usageToMetrics: { a: { accumulatedTokenUsage: { promptTokens: 7n } } } }, undefined, 7n],
	["tokens of which none is set", { usageToMetrics: { a: { accumulatedTokenUsage: {} } } }, undefined, 0n],
	["one of two usages", { usageToMetrics: { a: {}, b: usage(3n, 0.5) } }, 0.5, 3n],
])("the summary of a record with %s tells what was reported", (_, stats, cost, promptTokens) => {
	const record = create(ConversationInfoSchema, stats === undefined ? {} : { stats });
	const summary = fromBinary(ConversationSummarySchema, encodeSummary(summarize(record)));
	expect([summary.accumulatedCost, summary.tokens?.promptTokens]).toEqual([cost, promptTokens]);
});

test.each(["0", " "])("the summary shows a model named %j", (model) => {
	const native = create(ConversationInfoSchema, { agent: { kind: { case: "agent", value: { llm: { model } } } } });
	const forced = create(ConversationInfoSchema, {
		agent: { kind: { case: "acpAgent", value: { acpModel: model } } },
	});
	const current = create(ConversationInfoSchema, { currentModelId: model });
	const labelled = create(ConversationInfoSchema, {
		currentModelId: "id",
		availableModels: [{ modelId: "id", name: model }],
	});
	for (const record of [native, forced, current, labelled]) expect(summarize(record).model).toBe(model);
});
