import type { ConversationStats, Metrics } from "../../gen/conversations/v1/stats_pb.js";

/**
 * The usage ledger of a conversation: what its calls of models cost, by usage id, model and quarter of an hour. The rows
 * of a life of a conversation always add up to the `stats` of its current record, less what a fork took over from its
 * source.
 */

/** Length of a quarter of an hour in microseconds. */
export const QUARTER = 900_000_000n;
/** Units of cost in one unit of the record's currency: costs are integers of 10⁻⁹. */
export const COST_UNITS = 1_000_000_000;
/** Limits of every number of a row: those of a signed integer of 64 bits. */
const MAX = 2n ** 63n - 1n;
const MIN = -(2n ** 63n);

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

/** An entry to add to the ledger. Negative numbers take back what was counted before. */
export interface UsageRow extends Amounts {
	readonly usageId: string;
	/** Model of the calls. */
	readonly model: string;
	/** Agent kind of the record that showed the calls. */
	readonly agentKind: string;
	/** Number of quarters of an hour from the Unix epoch to the time of the calls. */
	readonly quarter: bigint;
}

/** What identifies a row of a life. */
type RowKey = Omit<UsageRow, keyof Amounts>;

/** What of a conversation's stats the ledger has counted. It is stored as JSON text; see {@link formatLedger}. */
export interface Ledger {
	/** Whether it is decided what a fork took over from its source: once the record has `created_at`. */
	readonly settled: boolean;
	readonly usages: ReadonlyMap<string, CountedUsage>;
}

/** What of one usage id has been counted. */
interface CountedUsage {
	/** The list of costs. */
	readonly costs: CountedList;
	/** The list of token usages. */
	readonly tokens: CountedList;
	/** What a fork took over from its source beside the entries of the lists. It adds no rows. */
	readonly taken: Amounts;
	/** Rows for the part of the totals that the lists do not explain yet. The lists replace them. */
	readonly provisional: readonly UsageRow[];
}

/** The beginning of a list that has been counted. */
interface CountedList {
	readonly length: number;
	readonly sum: Amounts;
}

/** The current record's stats, and what is known about the times of its calls. Times are microseconds of Unix time. */
export interface ReportedStats {
	readonly stats: ConversationStats | undefined;
	/** `created_at` of the record. */
	readonly createdAt: bigint | undefined;
	/** Whether the record says that the conversation is a fork. */
	readonly isFork: boolean;
	/** Agent kind of the record. */
	readonly agentKind: string;
	/** Time of the update that shows the stats. Counts for calls whose time nothing tells. */
	readonly time: bigint;
	/** Returns the time of the event with an `llm_response_id`; undefined if there is none. */
	readonly timeOf: (responseId: string) => bigint | undefined;
}

const ZERO: Amounts = Object.freeze({
	cost: 0n,
	promptTokens: 0n,
	completionTokens: 0n,
	cacheReadTokens: 0n,
	cacheWriteTokens: 0n,
	reasoningTokens: 0n,
	calls: 0n,
});
const NO_LIST: CountedList = { length: 0, sum: ZERO };
const NO_USAGE: CountedUsage = { costs: NO_LIST, tokens: NO_LIST, taken: ZERO, provisional: [] };

/** The ledger of a conversation at the beginning of a life. */
export const NO_LEDGER: Ledger = { settled: false, usages: new Map() };

/**
 * Counts the stats of a record that became current.
 *
 * @param ledger the ledger of this life of the conversation
 * @returns the ledger afterwards, and the rows to add. The rows of a life add up to the totals of the stats, less what was
 *   taken over: exactly in tokens, and to 10⁻⁹ for each call in cost
 */
export function countStats(
	ledger: Ledger,
	reported: ReportedStats,
): { readonly ledger: Ledger; readonly rows: readonly UsageRow[] } {
	const metrics = new Map(Object.entries(reported.stats?.usageToMetrics ?? {}));
	// Until `created_at` is known, nobody can tell whether listed calls are those of a fork's source. So all is provisional.
	const settles = !ledger.settled && reported.createdAt !== undefined;
	const settled = ledger.settled || settles;
	const usages = new Map<string, CountedUsage>();
	const rows = new Rows();
	for (const usageId of new Set([...ledger.usages.keys(), ...metrics.keys()])) {
		const before = ledger.usages.get(usageId) ?? NO_USAGE;
		const of = metrics.get(usageId);
		const taken = settles && of !== undefined ? takenOver(of, reported) : undefined;
		usages.set(usageId, countUsage({ usageId, before, metrics: of, reported, settled, taken }, rows));
	}
	return { ledger: { settled, usages }, rows: rows.list() };
}

interface UsageToCount {
	readonly usageId: string;
	readonly before: CountedUsage;
	/** Undefined if the record has no metrics of this usage id. */
	readonly metrics: Metrics | undefined;
	readonly reported: ReportedStats;
	readonly settled: boolean;
	/** The beginnings of the lists that a fork took over. Undefined if there are none, or it was decided before. */
	readonly taken: TakenOver | undefined;
}

interface TakenOver {
	readonly costs: number;
	readonly tokens: number;
	/** Whether all of the totals was taken over, also what the lists do not explain. */
	readonly all: boolean;
}

/** Counts the metrics of one usage id. */
function countUsage({ usageId, before, metrics, reported, settled, taken }: UsageToCount, rows: Rows): CountedUsage {
	const fallbackModel = metrics?.modelName ?? before.provisional.at(-1)?.model ?? "";
	const now = { usageId, model: fallbackModel, agentKind: reported.agentKind, quarter: quarterOf(reported.time) };
	const costs = costEntries(metrics, now);
	const tokens = tokenEntries(metrics, now, reported);
	const totals = totalsOf(metrics, before);
	if (!settled) {
		// Everything is counted anew from the lists, with the rest at the time of the update that showed it.
		const listed = new Rows();
		for (const entry of [...costs, ...tokens]) listed.add(entry);
		const known = sumOf([...before.provisional]);
		const rest = subtract(totals, costs.length + tokens.length === 0 ? known : sumOf([...costs, ...tokens]));
		const kept = costs.length + tokens.length === 0 ? before.provisional : listed.list();
		const provisional = merged([...kept, ...(isZero(rest) ? [] : [{ ...now, ...rest }])]);
		for (const row of before.provisional) rows.add(negative(row));
		for (const row of provisional) rows.add(row);
		return { ...NO_USAGE, provisional };
	}
	const countedCosts = countList(before.costs, costs, taken?.costs ?? 0, now, rows);
	const countedTokens = countList(before.tokens, tokens, taken?.tokens ?? 0, now, rows);
	const lists = { costs: countedCosts.list, tokens: countedTokens.list };
	const listed = add(lists.costs.sum, lists.tokens.sum);
	// If everything listed is the source's, so is the part of the totals that no list explains.
	const alsoTaken = taken?.all === true ? subtract(totals, listed) : before.taken;
	const rest = withoutRounding(subtract(totals, add(listed, alsoTaken)), lists.costs.length + 1);
	const provisional = replaceProvisional(before.provisional, rest, add(countedCosts.added, countedTokens.added), now);
	for (const row of before.provisional) rows.add(negative(row));
	for (const row of provisional) rows.add(row);
	return { ...lists, taken: alsoTaken, provisional };
}

/**
 * Returns how much of the lists of a fork's first record is a copy of its source's. Costs tell their time; one without a
 * time is the fork's own. Token usages do not tell it: own are those from the first one on that has an event since the
 * fork, and at least as many as there are own costs.
 */
function takenOver(
	{ costs, tokenUsages }: Metrics,
	{ createdAt, isFork, timeOf }: ReportedStats,
): TakenOver | undefined {
	// Costs of another conversation may be older than it too, because of a clock.
	if (createdAt === undefined || !isFork) return undefined;
	const firstOwnCost = costs.findIndex(
		({ timestamp }) => timestamp === undefined || microseconds(timestamp) >= createdAt,
	);
	const takenCosts = firstOwnCost < 0 ? costs.length : firstOwnCost;
	if (takenCosts === 0 && costs.length > 0) return undefined;
	// An older event is a copy of the source's, which a reconciliation fetched.
	const firstOwnTokens = tokenUsages.findIndex(
		({ responseId = "" }) => (timeOf(responseId) ?? createdAt - 1n) >= createdAt,
	);
	const ownCosts = costs.length - takenCosts;
	const mostTaken = Math.max(0, tokenUsages.length - ownCosts);
	const takenTokens = firstOwnTokens < 0 ? mostTaken : Math.min(firstOwnTokens, mostTaken);
	return { costs: takenCosts, tokens: takenTokens, all: ownCosts === 0 && takenTokens === tokenUsages.length };
}

/**
 * Counts the entries of a list after those that were counted before.
 *
 * @param taken number of entries at the beginning that add no rows
 * @returns the list as it is counted now, and what the new entries add to its sum
 */
function countList(
	before: CountedList,
	entries: readonly UsageRow[],
	taken: number,
	now: RowKey,
	rows: Rows,
): { readonly list: CountedList; readonly added: Amounts } {
	// State updates have no lists. What was counted stays.
	if (entries.length === 0) return { list: before, added: ZERO };
	const sum = sumOf(entries);
	const grows = entries.length >= before.length && isEqual(sumOf(entries.slice(0, before.length)), before.sum);
	const added = subtract(sum, before.sum);
	if (grows) for (const entry of entries.slice(Math.max(before.length, taken))) rows.add(entry);
	// The list is another one than before. Where the difference belongs is not known.
	else if (!isZero(added)) rows.add({ ...now, ...added });
	return { list: { length: entries.length, sum }, added: grows ? added : ZERO };
}

/**
 * Returns the provisional rows for the part of the totals that the lists do not explain. New entries of the lists replace
 * the oldest rows; what is left over of the difference belongs to the time of the update.
 */
function replaceProvisional(
	before: readonly UsageRow[],
	rest: Amounts,
	listed: Amounts,
	now: RowKey,
): readonly UsageRow[] {
	if (isZero(rest)) return [];
	const kept: UsageRow[] = [];
	const toReplace: Record<keyof Amounts, bigint> = { ...listed };
	for (const row of before) {
		const left = mapAmounts((name) => {
			const replaced = row[name] > 0n && toReplace[name] > 0n ? least(row[name], toReplace[name]) : 0n;
			toReplace[name] -= replaced;
			return row[name] - replaced;
		});
		if (!isZero(left)) kept.push({ ...row, ...left });
	}
	const difference = subtract(rest, sumOf(kept));
	return merged(isZero(difference) ? kept : [...kept, { ...now, ...difference }]);
}

function costEntries(metrics: Metrics | undefined, now: RowKey): UsageRow[] {
	return (metrics?.costs ?? []).map(({ model, cost, timestamp }) => ({
		...ZERO,
		...now,
		model: model ?? metrics?.modelName ?? "",
		quarter: timestamp === undefined ? now.quarter : quarterOf(microseconds(timestamp)),
		cost: costUnits(cost ?? 0),
	}));
}

function tokenEntries(metrics: Metrics | undefined, now: RowKey, { time, timeOf }: ReportedStats): UsageRow[] {
	return (metrics?.tokenUsages ?? []).map((usage) => ({
		...now,
		model: usage.model || (metrics?.modelName ?? ""),
		quarter: quarterOf(timeOf(usage.responseId ?? "") ?? time),
		cost: 0n,
		promptTokens: usage.promptTokens ?? 0n,
		completionTokens: usage.completionTokens ?? 0n,
		cacheReadTokens: usage.cacheReadTokens ?? 0n,
		cacheWriteTokens: usage.cacheWriteTokens ?? 0n,
		reasoningTokens: usage.reasoningTokens ?? 0n,
		calls: 1n,
	}));
}

/** Returns the totals of the metrics, with the number of calls: that of the longest list, or what was counted before. */
function totalsOf(metrics: Metrics | undefined, before: CountedUsage): Amounts {
	if (metrics === undefined) return ZERO;
	const { accumulatedCost = 0, accumulatedTokenUsage: tokens, costs, tokenUsages, responseLatencies } = metrics;
	const listed = Math.max(costs.length, tokenUsages.length, responseLatencies.length);
	const counted = before.tokens.sum.calls + sumOf(before.provisional).calls;
	return {
		cost: costUnits(accumulatedCost),
		promptTokens: tokens?.promptTokens ?? 0n,
		completionTokens: tokens?.completionTokens ?? 0n,
		cacheReadTokens: tokens?.cacheReadTokens ?? 0n,
		cacheWriteTokens: tokens?.cacheWriteTokens ?? 0n,
		reasoningTokens: tokens?.reasoningTokens ?? 0n,
		calls: listed === 0 ? counted : BigInt(listed),
	};
}

/** Returns the amounts without a difference in cost that comes from rounding each of `count` costs. */
function withoutRounding(amounts: Amounts, count: number): Amounts {
	const { cost } = amounts;
	return (cost < 0n ? -cost : cost) <= BigInt(count) ? { ...amounts, cost: 0n } : amounts;
}

/** Converts a cost to units. An infinite or very large cost ends at the limit. */
export function costUnits(cost: number): bigint {
	const units = Math.round(cost * COST_UNITS);
	return Number.isFinite(units) ? limit(BigInt(units)) : units > 0 ? MAX : 0n;
}

/** Returns the number of the quarter of an hour at a time in microseconds. */
export function quarterOf(time: bigint): bigint {
	return time < 0n ? (time - QUARTER + 1n) / QUARTER : time / QUARTER;
}

/** Converts seconds since the Unix epoch to microseconds. Times beyond the years 1 to 9999 end at their limits. */
function microseconds(seconds: number): bigint {
	const limited = Math.min(Math.max(Number.isNaN(seconds) ? 0 : seconds, -62_135_596_800), 253_402_300_799);
	return BigInt(Math.round(limited * 1e6));
}

/** Rows with one sum for each usage id, model, agent kind and quarter. */
class Rows {
	readonly #byKey = new Map<string, UsageRow>();

	add(row: UsageRow): void {
		const key = JSON.stringify([row.usageId, row.model, row.agentKind, String(row.quarter)]);
		const known = this.#byKey.get(key);
		this.#byKey.set(key, known === undefined ? row : { ...row, ...add(known, row) });
	}

	/** Returns the rows that are not zero. */
	list(): UsageRow[] {
		return [...this.#byKey.values()].filter((row) => !isZero(row));
	}
}

function merged(list: readonly UsageRow[]): readonly UsageRow[] {
	const rows = new Rows();
	for (const row of list) rows.add(row);
	return rows.list();
}

function mapAmounts(value: (name: keyof Amounts) => bigint): Amounts {
	return {
		cost: value("cost"),
		promptTokens: value("promptTokens"),
		completionTokens: value("completionTokens"),
		cacheReadTokens: value("cacheReadTokens"),
		cacheWriteTokens: value("cacheWriteTokens"),
		reasoningTokens: value("reasoningTokens"),
		calls: value("calls"),
	};
}

const add = (a: Amounts, b: Amounts): Amounts => mapAmounts((name) => limit(a[name] + b[name]));
const subtract = (a: Amounts, b: Amounts): Amounts => mapAmounts((name) => limit(a[name] - b[name]));
const negative = (row: UsageRow): UsageRow => ({ ...row, ...subtract(ZERO, row) });
const isZero = (amounts: Amounts): boolean => AMOUNTS.every((name) => amounts[name] === 0n);
const isEqual = (a: Amounts, b: Amounts): boolean => AMOUNTS.every((name) => a[name] === b[name]);
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b);

function limit(value: bigint): bigint {
	return value > MAX ? MAX : value < MIN ? MIN : value;
}

/** A ledger as it is stored. JSON numbers cannot hold all 64-bit integers, so amounts are texts in order of AMOUNTS. */
interface StoredLedger {
	readonly settled: boolean;
	readonly usages: readonly {
		readonly usageId: string;
		readonly costs: readonly [length: number, sum: readonly string[]];
		readonly tokens: readonly [length: number, sum: readonly string[]];
		readonly taken: readonly string[];
		readonly provisional: readonly (readonly [
			model: string,
			agentKind: string,
			quarter: string,
			amounts: readonly string[],
		])[];
	}[];
}

/** Formats a ledger as JSON text, for the store. */
export function formatLedger({ settled, usages }: Ledger): string {
	// `settled` comes first, for isSettled.
	const stored: StoredLedger = {
		settled,
		usages: [...usages].map(([usageId, { costs, tokens, taken, provisional }]) => ({
			usageId,
			costs: [costs.length, formatAmounts(costs.sum)],
			tokens: [tokens.length, formatAmounts(tokens.sum)],
			taken: formatAmounts(taken),
			provisional: provisional.map((row) => [row.model, row.agentKind, String(row.quarter), formatAmounts(row)]),
		})),
	};
	return JSON.stringify(stored);
}

/** Returns {@link Ledger.settled} of a text of {@link formatLedger}, without parsing the rest of it. */
export function isSettled(text: string): boolean {
	return text.startsWith('{"settled":true');
}

/** Parses a text of {@link formatLedger}. */
export function parseLedger(text: string): Ledger {
	const { settled, usages }: StoredLedger = JSON.parse(text);
	return {
		settled,
		usages: new Map(
			usages.map(({ usageId, costs, tokens, taken, provisional }) => [
				usageId,
				{
					costs: { length: costs[0], sum: parseAmounts(costs[1]) },
					tokens: { length: tokens[0], sum: parseAmounts(tokens[1]) },
					taken: parseAmounts(taken),
					provisional: provisional.map(([model, agentKind, quarter, amounts]) => ({
						usageId,
						model,
						agentKind,
						quarter: BigInt(quarter),
						...parseAmounts(amounts),
					})),
				},
			]),
		),
	};
}

function formatAmounts(amounts: Amounts): string[] {
	return AMOUNTS.map((name) => String(amounts[name]));
}

function parseAmounts(texts: readonly string[]): Amounts {
	return mapAmounts((name) => BigInt(texts[AMOUNTS.indexOf(name)] ?? "0"));
}

/**
 * Returns the ids of responses whose times matter for stats: those of the token usages that are not counted yet.
 *
 * @param ledger the ledger before the stats are counted
 */
export function uncountedResponses(ledger: Ledger, stats: ConversationStats): string[] {
	return Object.entries(stats.usageToMetrics).flatMap(([usageId, { tokenUsages }]) => {
		const counted = ledger.settled ? (ledger.usages.get(usageId)?.tokens.length ?? 0) : 0;
		return tokenUsages.slice(counted).flatMap(({ responseId }) => (responseId ? [responseId] : []));
	});
}

/** Returns the sum of two amounts; each number ends at the limits of its type. */
export function addAmounts(a: Amounts, b: Amounts): Amounts {
	return add(a, b);
}

/** Returns the amounts that take back others. */
export function negated(amounts: Amounts): Amounts {
	return subtract(ZERO, amounts);
}

/** Returns the sum of rows. */
export function sumOf(list: readonly Amounts[]): Amounts {
	return list.reduce<Amounts>(add, ZERO);
}
