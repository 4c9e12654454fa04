import type { Metrics } from "../../gen/conversations/v1/stats_pb.js";
import { costUnits } from "../record/stats.ts";

/** The numbers of a row. All are integers from -2^63 to 2^63 - 1; a sum beyond ends at the limit. */
export const AMOUNTS = [
	"cost",
	"promptTokens",
	"completionTokens",
	"cacheReadTokens",
	"cacheWriteTokens",
	"reasoningTokens",
	"calls",
] as const;
export type Amounts = Readonly<Record<(typeof AMOUNTS)[number], bigint>>;
/** Amounts in the order of {@link AMOUNTS}, as JSON can have them. */
export type AmountTexts = readonly string[];

/** Limits of every number of a row: those of a signed integer of 64 bits. */
const MAX = 2n ** 63n - 1n;
const MIN = -(2n ** 63n);

/** Returns amounts with the results of a function for each. A result beyond the limits ends at these. */
export function mapAmounts(value: (name: keyof Amounts, n: number) => bigint): Amounts {
	return {
		cost: limit(value("cost", 0)),
		promptTokens: limit(value("promptTokens", 1)),
		completionTokens: limit(value("completionTokens", 2)),
		cacheReadTokens: limit(value("cacheReadTokens", 3)),
		cacheWriteTokens: limit(value("cacheWriteTokens", 4)),
		reasoningTokens: limit(value("reasoningTokens", 5)),
		calls: limit(value("calls", 6)),
	};
}

export const NOTHING: Amounts = Object.freeze(mapAmounts(() => 0n));

export function addAmounts(a: Amounts, b: Amounts): Amounts {
	return mapAmounts((name) => a[name] + b[name]);
}

export function subtract(a: Amounts, b: Amounts): Amounts {
	return mapAmounts((name) => a[name] - b[name]);
}

/** Returns the amounts that take back others. */
export function negated(amounts: Amounts): Amounts {
	return subtract(NOTHING, amounts);
}

/** Returns the sum of rows. */
export function sumOf(list: readonly Amounts[]): Amounts {
	return list.reduce<Amounts>(addAmounts, NOTHING);
}

export function isNothing(amounts: Amounts): boolean {
	return AMOUNTS.every((name) => amounts[name] === 0n);
}

export function textsOf(amounts: Amounts): AmountTexts {
	return AMOUNTS.map((name) => String(amounts[name]));
}

export function amountsOf(texts: AmountTexts): Amounts {
	return mapAmounts((_, n) => BigInt(texts[n] ?? 0));
}

/** Returns the totals that metrics report. The number of calls is that of the longest list. */
export function totalsOf({ accumulatedCost = 0, accumulatedTokenUsage, ...lists }: Metrics): Amounts {
	const { costs, tokenUsages, responseLatencies } = lists;
	const calls = Math.max(costs.length, tokenUsages.length, responseLatencies.length);
	return { ...tokensOf(accumulatedTokenUsage), cost: costUnits(accumulatedCost), calls: BigInt(calls) };
}

/** Returns the amounts of the tokens alone. */
export function tokensOf(usage: Metrics["accumulatedTokenUsage"]): Amounts {
	return {
		cost: 0n,
		promptTokens: usage?.promptTokens ?? 0n,
		completionTokens: usage?.completionTokens ?? 0n,
		cacheReadTokens: usage?.cacheReadTokens ?? 0n,
		cacheWriteTokens: usage?.cacheWriteTokens ?? 0n,
		reasoningTokens: usage?.reasoningTokens ?? 0n,
		calls: 0n,
	};
}

function limit(value: bigint): bigint {
	return value > MAX ? MAX : value < MIN ? MIN : value;
}

/** Whether a number is at its limit, so that the sum may be beyond. */
export function isLimited(amounts: Amounts): boolean {
	return AMOUNTS.some((name) => amounts[name] === MAX || amounts[name] === MIN);
}

/** Returns the greater one of two amounts. */
export function greater(one: bigint, other: bigint): bigint {
	return one > other ? one : other;
}
