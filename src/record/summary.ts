import { create } from "@bufbuild/protobuf";
import type { AnyAgent } from "../../gen/conversations/v1/agent_pb.js";
import { ConversationExecutionStatus, type ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import type { ConversationStats } from "../../gen/conversations/v1/stats_pb.js";
import {
	type ContextUse,
	ContextUseSchema,
	type ConversationSummary,
	ConversationSummarySchema,
	type TokenTotals,
	TokenTotalsSchema,
} from "../../gen/conversations/v1/summary_pb.js";
import { deriveBinaryEncoder } from "./binary-encoder.ts";
import { metricsOf, sumOfCosts, TOKENS } from "./stats.ts";

export const encodeSummary: (summary: ConversationSummary) => Uint8Array =
	deriveBinaryEncoder(ConversationSummarySchema);

/** Members of a record that {@link summarize} reads. */
export const SUMMARY_MEMBERS: readonly string[] = [
	...["id", "title", "execution_status", "agent", "current_model_id", "available_models", "stats"],
	...["created_at", "updated_at", "parent_conversation_id", "forked_from_conversation_id", "tags"],
];

/** Returns the summary of a record. Its secrets are redacted, because the summary repeats parts of it. */
export function summarize(record: ConversationInfo): ConversationSummary {
	const { cost, tokens } = totals(record.stats);
	return create(ConversationSummarySchema, {
		id: record.id ?? "",
		title: record.title,
		executionStatus: record.executionStatus ?? ConversationExecutionStatus.UNSPECIFIED,
		agentKind: agentKind(record.agent),
		model: shownModel(record),
		...(cost === undefined ? {} : { accumulatedCost: cost }),
		...(tokens === undefined ? {} : { tokens }),
		createdAt: record.createdAt,
		updatedAt: record.updatedAt,
		parentConversationId: record.parentConversationId,
		forkedFromConversationId: record.forkedFromConversationId,
		tags: record.tags,
		context: contextOf(record.stats),
	});
}

function agentKind(agent: AnyAgent | undefined): string {
	switch (agent?.kind.case) {
		case "acpAgent":
			return "ACPAgent";
		case "agent":
			return "Agent";
		case undefined:
			return "";
	}
}

/**
 * Returns the name of the model to show. An ACP server may report an opaque id, whose label is in `available_models`. A
 * forced model need not be listed there; its id is shown.
 */
function shownModel(record: ConversationInfo): string {
	const agent = record.agent?.kind;
	if (agent?.case === "agent") return agent.value.llm?.model ?? "";
	const id = record.currentModelId;
	if (id === undefined) return (agent?.case === "acpAgent" ? agent.value.acpModel : undefined) ?? "";
	return record.availableModels.find((model) => model.modelId === id)?.name ?? id;
}

/**
 * Returns the sums over all usages, of each kind undefined if none reports it. They stop at 2^63 - 1 tokens and units of
 * cost.
 */
function totals(stats: ConversationStats | undefined): { cost: number | undefined; tokens: TokenTotals | undefined } {
	const reported = Object.values(stats?.usageToMetrics ?? {});
	const tokens = create(TokenTotalsSchema);
	const usages = metricsOf(stats).map(([, metrics]) => metrics);
	for (const metrics of usages) {
		const usage = metrics.accumulatedTokenUsage;
		for (const name of TOKENS) tokens[name] = addTokens(tokens[name], usage?.[name]);
	}
	const cost = sumOfCosts(usages.map(({ accumulatedCost = 0 }) => accumulatedCost));
	return {
		cost: reported.some(({ accumulatedCost }) => accumulatedCost !== undefined) ? cost : undefined,
		tokens: reported.some(({ accumulatedTokenUsage }) => accumulatedTokenUsage !== undefined) ? tokens : undefined,
	};
}

/** Usage id of the agent itself; the others are those of condensers and the like. */
const AGENT_USAGE = "agent";

/**
 * Returns how much of its context the last call of the agent's model used. If no usage is the agent's, it is the usage
 * with the largest context. A state event updates the accumulated usage only, so the list of calls stands in where the
 * accumulated usage does not tell.
 */
function contextOf(stats: ConversationStats | undefined): ContextUse | undefined {
	const usages = stats?.usageToMetrics ?? {};
	const agent = Object.hasOwn(usages, AGENT_USAGE) ? usages[AGENT_USAGE] : undefined;
	let largest: ContextUse | undefined;
	for (const { accumulatedTokenUsage, tokenUsages } of agent === undefined ? Object.values(usages) : [agent]) {
		const use = [accumulatedTokenUsage, tokenUsages.at(-1)].find((usage) => (usage?.perTurnToken ?? 0n) > 0n);
		const perTurnToken = use?.perTurnToken ?? 0n;
		if (perTurnToken > (largest?.perTurnToken ?? 0n))
			largest = create(ContextUseSchema, { perTurnToken, contextWindow: use?.contextWindow ?? 0n });
	}
	return largest;
}

const MAX_TOKENS = 2n ** 63n - 1n;

function addTokens(sum: bigint, count: bigint | undefined): bigint {
	const total = sum + (count ?? 0n);
	return total > MAX_TOKENS ? MAX_TOKENS : total;
}
