import { AMOUNTS, type Amounts } from "../usage/ledger.ts";
import type { LedgerRow, UsageSum } from "./usage-plan.ts";
import { bigint, integer, type Row } from "./values.ts";

/** The tables of usage, whose columns have the same names in every engine. */

/** Names of the columns with amounts, in the order of AMOUNTS. */
export const AMOUNT_COLUMNS = [
	"cost",
	"prompt_tokens",
	"completion_tokens",
	"cache_read_tokens",
	"cache_write_tokens",
	"reasoning_tokens",
	"calls",
] as const;

/** Columns of the key of usage_ledger. */
export const LEDGER_KEY = ["conversation", "life", "quarter", "model", "usage_id", "agent_kind"] as const;
/** Columns of the key of usage_sums. */
export const SUMS_KEY = ["length", "start", "model", "usage_id", "agent_kind", "sender", "owner"] as const;

/** SQL for whether all amounts of a row are zero. */
export const IS_ZERO = AMOUNT_COLUMNS.map((name) => `${name} = 0`).join(" AND ");

/** Whether a row takes back what was counted before, so that the sum may be zero. Rows that are zero are removed. */
export function takesBack(row: LedgerRow): boolean {
	return AMOUNTS.some((name) => row[name] < 0n);
}

/** SQL columns of rows `l` of usage_ledger and their conversations `k` that {@link ledgerRowFrom} reads. */
export const LEDGER_ROW_COLUMNS = `
	l.life, l.quarter, l.model, l.usage_id, l.agent_kind, ${AMOUNT_COLUMNS.map((name) => `l.${name}`).join()}, k.sender, k.owner
`;

/**
 * Reads a row of a ledger.
 *
 * @param decode decodes the stored form of a text
 */
export function ledgerRowFrom(row: Row, conversationId: string, decode: (value: unknown) => string): LedgerRow {
	return {
		conversationId,
		life: integer(row.life),
		quarter: bigint(row.quarter),
		model: decode(row.model),
		usageId: decode(row.usage_id),
		agentKind: decode(row.agent_kind),
		sender: decode(row.sender),
		owner: decode(row.owner),
		...amountsFrom(row),
	};
}

/** Returns the columns of a row with names, except `conversation`. */
export function ledgerColumns(row: LedgerRow) {
	const { life, quarter, model, usageId, agentKind } = row;
	return { life: BigInt(life), quarter, model, usage_id: usageId, agent_kind: agentKind, ...amountColumns(row) };
}

export function sumColumns(sum: UsageSum) {
	const { length, start, model, usageId, agentKind, sender, owner } = sum;
	return { length, start, model, usage_id: usageId, agent_kind: agentKind, sender, owner, ...amountColumns(sum) };
}

function amountColumns(amounts: Amounts): Record<(typeof AMOUNT_COLUMNS)[number], bigint> {
	return {
		cost: amounts.cost,
		prompt_tokens: amounts.promptTokens,
		completion_tokens: amounts.completionTokens,
		cache_read_tokens: amounts.cacheReadTokens,
		cache_write_tokens: amounts.cacheWriteTokens,
		reasoning_tokens: amounts.reasoningTokens,
		calls: amounts.calls,
	};
}

/** Reads the columns with amounts. */
export function amountsFrom(row: Row): Amounts {
	return {
		cost: bigint(row.cost),
		promptTokens: bigint(row.prompt_tokens),
		completionTokens: bigint(row.completion_tokens),
		cacheReadTokens: bigint(row.cache_read_tokens),
		cacheWriteTokens: bigint(row.cache_write_tokens),
		reasoningTokens: bigint(row.reasoning_tokens),
		calls: bigint(row.calls),
	};
}
