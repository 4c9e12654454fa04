import type { Amounts } from "../usage/ledger.ts";
import { bigint, type Row } from "./values.ts";

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

/** Length of the periods of the sums of all time: beyond every time, before or after the Unix epoch. */
export const ALL_TIME = 2n ** 32n;
/** Lengths of the periods of sums: a quarter of an hour, an hour, a day from midnight to midnight UTC, and all time. */
export const PERIODS = [1n, 4n, 96n, ALL_TIME] as const;

/** Returns the start of the period of some quarters of an hour that has a quarter. */
export function periodStart(quarter: bigint, length: bigint): bigint {
	return quarter - (((quarter % length) + length) % length);
}

export function amountColumns(amounts: Amounts): Record<(typeof AMOUNT_COLUMNS)[number], bigint> {
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
