import { AMOUNTS, type Amounts } from "../usage/ledger.ts";
import type { UsageLedger } from "./stored-rows.ts";
import type { LedgerRow, UsageSum, WrittenUsage } from "./usage-plan.ts";
import { bigint, type Row, text } from "./values.ts";

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

/** SQL for the columns of a row `l` of usage_ledger as {@link ledgerFrom} reads them; `text` converts to a text. */
export function ledgerArray(text: (column: string) => string): string {
	return [
		"l.life",
		"l.quarter",
		"l.model",
		"l.usage_id",
		"l.agent_kind",
		...AMOUNT_COLUMNS.map((name) => text(`l.${name}`)),
	].join();
}

/**
 * Reads the rows of the ledger of a conversation.
 *
 * @param column JSON text: an array of arrays with the columns of {@link ledgerArray}
 * @returns the rows, ordered by their keys
 */
export function ledgerFrom(column: unknown, decode: (value: unknown) => string): UsageLedger["rows"] {
	const rows: unknown = JSON.parse(text(column));
	if (!Array.isArray(rows)) throw new TypeError("the column does not hold a list of rows");
	const keyed = rows.map((row: readonly unknown[]) => {
		const read = ledgerRowFrom(row, decode);
		return { read, key: JSON.stringify([read.life, Number(read.quarter), read.model, read.usageId, read.agentKind]) };
	});
	return keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ read }) => read);
}

function ledgerRowFrom(
	[life, quarter, model, usageId, agentKind, ...amounts]: readonly unknown[],
	decode: (value: unknown) => string,
) {
	const [cost, promptTokens, completionTokens, cacheReadTokens, cacheWriteTokens, reasoningTokens, calls] = amounts.map(
		(amount) => BigInt(text(amount)),
	);
	return {
		life: Number(life),
		quarter: BigInt(Number(quarter)),
		model: decode(model),
		usageId: decode(usageId),
		agentKind: decode(agentKind),
		cost: cost ?? 0n,
		promptTokens: promptTokens ?? 0n,
		completionTokens: completionTokens ?? 0n,
		cacheReadTokens: cacheReadTokens ?? 0n,
		cacheWriteTokens: cacheWriteTokens ?? 0n,
		reasoningTokens: reasoningTokens ?? 0n,
		calls: calls ?? 0n,
	};
}

/** Returns what is to be written for ledgers of conversations that the database does not have yet. */
export function writtenLedgers(ledgers: readonly UsageLedger[]): WrittenUsage {
	const rows = ledgers.flatMap(({ conversationId, state: { sender, owner }, rows: own }) =>
		own.map((row) => ({ ...row, conversationId, sender, owner })),
	);
	return {
		states: new Map(ledgers.map(({ conversationId, state }) => [conversationId, state])),
		rows: new Map(rows.map((row, n) => [String(n), row])),
	};
}
