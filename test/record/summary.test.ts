import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { summarize } from "../../src/record/summary.ts";

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
