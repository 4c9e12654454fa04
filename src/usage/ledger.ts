import type { ConversationStats, Metrics } from "../../gen/conversations/v1/stats_pb.js";
import { costUnits, metricsOf } from "../record/stats.ts";
import { nameOf, responseKey } from "./names.ts";

/**
 * What the calls of models of a conversation cost, by usage id, model and quarter of an hour. {@link Seen} keeps what
 * records and events have shown, without regard to the order in which they arrived or how often; {@link rowsOf} derives the
 * rows from it. The rows of a life add up to the `stats` of its last record, less what a fork took over from its source.
 *
 * Times are microseconds of Unix time. Those and the numbers of single calls are floating-point numbers, as in JSON; totals
 * are exact.
 */

/** Length of a quarter of an hour in microseconds. */
const QUARTER = 900_000_000n;
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

/** What identifies a row of a conversation. Texts are in the form of {@link nameOf}. */
export interface RowKey {
	readonly usageId: string;
	/** Model of the calls. */
	readonly model: string;
	/** Agent kind of the last record of the life. */
	readonly agentKind: string;
	/** Number of quarters of an hour from the Unix epoch to the time of the calls. */
	readonly quarter: bigint;
}
export interface UsageRow extends RowKey, Amounts {}

/** Stats as a record or an event shows them. */
interface Shown {
	readonly stats: ConversationStats;
	/** When they were shown. Counts for calls whose time nothing tells. */
	readonly time: number;
	/** `created_at` of the record; undefined if it is not known, as with events, which belong to the life of their time. */
	readonly life: number | undefined;
	/** The latest time that a cost can have: a little after the receipt. A later one counts as no time. */
	readonly latest: number;
	/** Whether it is an event with a full state, as the first event of a fork is. */
	readonly isFullState: boolean;
}

/** The stats of the last record of a life. */
interface LastRecord {
	/** `created_at`; undefined while none is known. */
	readonly life: number | undefined;
	readonly time: number;
	readonly agentKind: string;
	readonly isFork: boolean;
	/** Whether it is the conversation's current record. Otherwise the last one of its life is that with the largest rank. */
	readonly isCurrent: boolean;
	readonly rank: number;
	readonly stats: ConversationStats;
}

/** A call of a list of token usages. */
interface Call {
	readonly usageId: string;
	/** See {@link responseKey}; empty if the list does not tell it. */
	readonly id: string;
	/** Number of calls with the same id before it. */
	readonly n: number;
	readonly position: number;
	readonly model: string;
	readonly tokens: readonly number[];
	readonly shown: number;
	readonly life: number | null;
}

/** An entry of a list of costs. */
interface Cost {
	readonly usageId: string;
	readonly model: string;
	readonly cost: number;
	readonly at: number | null;
	/** Whether its time was ahead of the clock when it was shown; set if so. */
	readonly isAhead?: true;
	/** Number of entries before it with the same values. */
	readonly n: number;
	readonly shown: number;
	readonly life: number | null;
}

/** The largest totals that were shown in a quarter of an hour, in the order of AMOUNTS. */
interface Step {
	readonly usageId: string;
	readonly life: number | null;
	readonly quarter: number;
	readonly model: string;
	readonly totals: readonly number[];
}

interface Life {
	readonly began: number | null;
	readonly time: number;
	readonly agentKind: string;
	readonly isFork: boolean;
	readonly rank: number;
	/** By usage id: the model and the totals, in the order of AMOUNTS; without the number of calls if no list tells it. */
	readonly totals: readonly (readonly [usageId: string, model: string, totals: readonly string[]])[];
}

/** The earliest stats. Of a fork, they tell what it took over. */
interface First {
	readonly time: number;
	readonly isFullState: boolean;
	/** The time of the latest cost. */
	readonly lastCost: number | null;
	/** By usage id: the part of the totals that no list explains, and the number of calls with each id. */
	readonly usages: readonly (readonly [
		usageId: string,
		rest: readonly number[],
		ids: readonly (readonly [id: string, count: number])[],
	])[];
}

/** A row without the names of its columns; the amounts are in the order of AMOUNTS. */
export type EarlierRow = readonly [
	usageId: string,
	model: string,
	agentKind: string,
	quarter: string,
	amounts: readonly string[],
];

/** What was seen of the usage of a conversation. */
export interface Seen {
	/** The times of the first events with responses, by {@link responseKey}. */
	readonly times: Map<string, number>;
	readonly calls: Map<string, Call>;
	readonly costs: Map<string, Cost>;
	readonly steps: Map<string, Step>;
	lives: readonly Life[];
	first: First | undefined;
	/** The time of the earliest posted event. */
	firstEventAt: number | undefined;
	/** Those calls of a fork's source that the fork lists, also if the source is not known any more: see {@link callIds}. */
	readonly copied: Map<string, number>;
	/** Rows of a removed conversation that were counted by an earlier version. They stay. */
	readonly earlier: readonly EarlierRow[];
}

/** Returns what was seen of a conversation before anything is, but what an earlier version counted. */
export function nothingSeen(earlier: readonly EarlierRow[] = []): Seen {
	return {
		...{ times: new Map(), calls: new Map(), costs: new Map(), steps: new Map() },
		...{ lives: [], first: undefined, firstEventAt: undefined, copied: new Map(), earlier },
	};
}

/** Adds an event. Only what was posted counts as an event of a fork: what is fetched may be a copy of its source's. */
export function addEvent(
	seen: Seen,
	{ time, responseId, isPosted }: { readonly time: number; readonly responseId?: string; readonly isPosted: boolean },
): void {
	if (responseId !== undefined) seen.times.set(responseId, Math.min(time, seen.times.get(responseId) ?? time));
	if (isPosted) seen.firstEventAt = Math.min(time, seen.firstEventAt ?? time);
}

/** Adds stats. */
export function addStats(seen: Seen, { stats, time, latest, life: began, isFullState }: Shown): void {
	const life = began ?? null;
	const usages: First["usages"][number][] = [];
	const costTimes: number[] = [];
	for (const [name, metrics] of metricsOf(stats)) {
		const usageId = nameOf(name);
		const entries = entriesOf(usageId, metrics, time, latest, life);
		for (const [key, call] of entries.calls) put(seen.calls, key, call);
		for (const [key, cost] of entries.costs) put(seen.costs, key, cost);
		const totals = totalsOf(metrics).map(Number);
		if (totals.some((total) => total > 0)) {
			const quarter = Number(quarterOf(BigInt(Math.trunc(time))));
			const step = { usageId, life, quarter, model: nameOf(metrics.modelName ?? ""), totals };
			putStep(seen.steps, JSON.stringify([usageId, life, quarter]), step);
		}
		const ids = new Map<string, number>();
		for (const call of entries.calls.values()) ids.set(idOf(call), (ids.get(idOf(call)) ?? 0) + 1);
		costTimes.push(...[...entries.costs.values()].flatMap((cost) => timeOf(cost) ?? []));
		const listed = sumOf([
			...[...entries.calls.values()].map(amountsOfCall),
			...[...entries.costs.values()].map(amountsOfCost),
		]);
		const rest = AMOUNTS.map((amount, n) => Math.max(0, (totals[n] ?? 0) - Number(listed[amount])));
		usages.push([usageId, rest, [...ids]]);
	}
	const { first } = seen;
	if (first === undefined || time < first.time || (time === first.time && isFullState && !first.isFullState))
		seen.first = { time, isFullState, usages, lastCost: costTimes.length === 0 ? null : Math.max(...costTimes) };
}

/** Adds the last record of a life; its stats have been added as {@link Shown}. */
export function addLastRecord(seen: Seen, { life, isCurrent, stats, ...record }: LastRecord): void {
	const known = seen.lives;
	// Records without `created_at` belong to the present life, and so does what was shown before it was known.
	const began = life ?? known.at(-1)?.began ?? null;
	const before = known.find((one) => one.began === began) ?? known.find((one) => one.began === null);
	const isFork = record.isFork || before?.isFork === true;
	const totals = metricsOf(stats).map(([usageId, metrics]) => {
		const texts = totalsOf(metrics).map(String);
		return [nameOf(usageId), nameOf(metrics.modelName ?? ""), hasLists(metrics) ? texts : texts.slice(0, -1)] as const;
	});
	const isLast = before === undefined || isCurrent || record.rank >= before.rank;
	const after: Life = isLast
		? { ...record, agentKind: nameOf(record.agentKind), began, isFork, totals }
		: { ...before, began, isFork };
	const others = known.filter((one) => one !== before);
	seen.lives = [...others, after].sort(
		(a, b) => (a.began ?? Number.NEGATIVE_INFINITY) - (b.began ?? Number.NEGATIVE_INFINITY),
	);
}

/** What is known of the source of a fork: the number of its calls with each key of {@link copyKey}, or with an id alone. */
export type SourceCalls = ReadonlyMap<string, number>;

/**
 * Returns the calls of a conversation that a fork of it may have copied. Of those that only events tell, the tokens are not
 * known.
 */
export function callIds({ calls, times }: Pick<Seen, "calls" | "times">): SourceCalls {
	const ids = new Map([...times.keys()].map((id) => [id, 1]));
	for (const { id } of calls.values()) ids.delete(id);
	for (const call of calls.values()) ids.set(copyKey(call), (ids.get(copyKey(call)) ?? 0) + 1);
	return ids;
}

/** Returns what a call and its copy have in common. An ACP agent gives all calls of its session, and of a fork, one id. */
function copyKey(call: Call): string {
	return JSON.stringify([idOf(call), call.tokens]);
}

/**
 * Derives the rows of a conversation.
 *
 * @param source the calls of the conversation's source; undefined if it has none, or none that is known
 */
export function rowsOf(seen: Seen, source: SourceCalls | undefined): UsageRow[] {
	if (source !== undefined) {
		seen.copied.clear();
		for (const call of seen.calls.values())
			for (const key of [copyKey(call), idOf(call)]) {
				const count = source.get(key);
				if (count !== undefined) seen.copied.set(key, count);
			}
	}
	const rows = new Rows();
	for (const [usageId, model, agentKind, quarter, amounts] of seen.earlier) {
		const counted = mapAmounts((_, n) => BigInt(amounts[n] ?? 0));
		rows.add({ usageId, model, agentKind, quarter: BigInt(quarter), ...counted });
	}
	const byLife = new Map(seen.lives.map((life) => [life, new Map<string, Listed>()]));
	const listedOf = (life: Life | undefined, usageId: string): Listed | undefined => {
		const usages = life && byLife.get(life);
		const known = usages?.get(usageId) ?? { calls: [], costs: [], steps: [] };
		usages?.set(usageId, known);
		return usages && known;
	};
	for (const call of seen.calls.values()) listedOf(lifeOf(seen, call.life, call.shown), call.usageId)?.calls.push(call);
	for (const cost of seen.costs.values()) listedOf(lifeOf(seen, cost.life, cost.shown), cost.usageId)?.costs.push(cost);
	for (const [key, step] of seen.steps) {
		const shown = step.quarter * Number(QUARTER);
		listedOf(lifeOf(seen, step.life, shown), step.usageId)?.steps.push([key, step]);
	}
	for (const [life, usages] of byLife) {
		for (const [usageId] of life.totals) listedOf(life, usageId);
		for (const [usageId, listed] of usages) countUsage(seen, life, usageId, listed, source !== undefined, rows);
	}
	return rows.list();
}

/** What lists and totals show of a usage id in a life. */
interface Listed {
	readonly calls: Call[];
	readonly costs: Cost[];
	readonly steps: (readonly [key: string, step: Step])[];
}

function countUsage(seen: Seen, life: Life, usageId: string, of: Listed, hasSource: boolean, rows: Rows): void {
	const { agentKind } = life;
	const [, model = "", texts = []] = life.totals.find(([id]) => id === usageId) ?? [];
	const calls = of.calls.sort((a, b) => a.position - b.position);
	const costs = of.costs;
	const copies = life.isFork ? copiesOf(seen, life, usageId, calls, costs, hasSource) : NO_COPIES;
	for (const call of calls) {
		const quarter = quarterOf(BigInt(Math.trunc(seen.times.get(call.id) ?? call.shown)));
		if (!copies.entries.has(call))
			rows.add({ usageId, model: call.model || model, agentKind, quarter, ...amountsOfCall(call) });
	}
	for (const cost of costs) {
		const quarter = quarterOf(BigInt(Math.trunc(timeOf(cost) ?? cost.shown)));
		if (!copies.entries.has(cost))
			rows.add({ usageId, model: cost.model || model, agentKind, quarter, ...amountsOfCost(cost) });
	}
	const listed = sumOf([...calls.map(amountsOfCall), ...costs.map(amountsOfCost)]);
	const mostCalls = Math.max(Number(listed.calls), ...of.steps.map(([, { totals }]) => totals.at(-1) ?? 0));
	const hasCalls = texts.length !== AMOUNTS.length - 1;
	const totals = mapAmounts((name, n) => BigInt(texts[n] ?? (name === "calls" && !hasCalls ? mostCalls : 0)));
	const explained = addAmounts(listed, copies.rest);
	// Each cost of the lists is rounded.
	const { cost } = subtract(totals, explained);
	const isRounding = (cost < 0n ? -cost : cost) <= BigInt(costs.length + 1);
	const wanted = isRounding ? { ...totals, cost: explained.cost } : totals;
	const steps = of.steps.map(([, step]) => step).sort((a, b) => a.quarter - b.quarter);
	let counted: Amounts = explained;
	for (const step of steps) {
		const grown = mapAmounts((name, n) => {
			const total = limit(BigInt(step.totals[n] ?? 0));
			return most(0n, least(total, wanted[name]) - counted[name]);
		});
		rows.add({ usageId, model: step.model, agentKind, quarter: BigInt(step.quarter), ...grown });
		counted = addAmounts(counted, grown);
	}
	const quarter = quarterOf(BigInt(Math.trunc(life.time)));
	rows.add({ usageId, model, agentKind, quarter, ...subtract(wanted, counted) });
	// What the lists explain is not needed again.
	for (const [key, { totals: shown }] of of.steps)
		if (AMOUNTS.every((name, n) => BigInt(shown[n] ?? 0) <= listed[name])) seen.steps.delete(key);
}

/** What a fork took over. */
interface Copies {
	readonly entries: ReadonlySet<Call | Cost>;
	/** The part of the totals beside the lists. */
	readonly rest: Amounts;
}

/**
 * Returns what a fork took over. A cost tells its time; one without a time is the fork's own. Of the calls, copies are those
 * of the fork's first event, if that is a full state without own costs; otherwise those that the source has. If the source
 * is not known, own are the calls from the first one on that has an event since the fork, and at least as many as there are
 * own costs.
 */
function copiesOf(
	seen: Seen,
	life: Life,
	usageId: string,
	calls: readonly Call[],
	costs: readonly Cost[],
	hasSource: boolean,
): Copies {
	const first = seen.first !== undefined && lifeOf(seen, null, seen.first.time) === life ? seen.first : undefined;
	const began = life.began ?? first?.time ?? 0;
	const isOwn = (time: number | null) => time === null || time >= began;
	const copiedCosts = costs.filter((cost) => !isOwn(timeOf(cost)));
	const ofFirst = first?.usages.find(([id]) => id === usageId);
	const hasOwnCosts = first?.lastCost !== null && first?.lastCost !== undefined && isOwn(first.lastCost);
	const isAtFork = first?.isFullState === true && first.time <= (seen.firstEventAt ?? first.time) && !hasOwnCosts;
	let copiedCalls: readonly Call[];
	const ownCosts = costs.length - copiedCosts.length;
	if (isAtFork) copiedCalls = among(calls, new Map(ofFirst?.[2]));
	else if (hasSource || seen.copied.size > 0)
		// Each cost of its own has a call of its own.
		copiedCalls = among(calls, seen.copied).slice(0, Math.max(copiedCosts.length, calls.length - ownCosts));
	else {
		const firstOwn = calls.findIndex(({ id }) => (seen.times.get(id) ?? began - 1) >= began);
		const mostCopied = Math.max(0, calls.length - ownCosts);
		const isReset = copiedCosts.length === 0 && costs.length > 0;
		copiedCalls = isReset ? [] : calls.slice(0, firstOwn < 0 ? mostCopied : Math.min(firstOwn, mostCopied));
	}
	const ids = new Map<string, number>();
	for (const call of copiedCalls) ids.set(idOf(call), (ids.get(idOf(call)) ?? 0) + 1);
	const firstHasOwn = hasOwnCosts || ofFirst?.[2].some(([id, count]) => count > (ids.get(id) ?? 0)) === true;
	const restOfFirst = firstHasOwn ? [] : (ofFirst?.[1] ?? []);
	const rest = mapAmounts((name, n) => {
		// A call whose tokens are not listed has a cost.
		const unlisted = name === "calls" ? Math.max(0, copiedCosts.length - copiedCalls.length) : 0;
		return limit(BigInt(Math.max(unlisted, restOfFirst[n] ?? 0)));
	});
	return { entries: new Set<Call | Cost>([...copiedCalls, ...copiedCosts]), rest };
}

/** Returns as many of the calls as there are of each {@link copyKey}, or else of each id. */
function among(calls: readonly Call[], keys: ReadonlyMap<string, number>): Call[] {
	const left = new Map(keys);
	return calls.filter((call) => {
		const key = left.has(copyKey(call)) ? copyKey(call) : idOf(call);
		const count = left.get(key) ?? 0;
		left.set(key, count - 1);
		return count > 0;
	});
}

/** Returns the life to which something belongs: that of the record that shows it, or else that of its time. */
function lifeOf({ lives }: Seen, life: number | null, time: number): Life | undefined {
	const known = life === null ? undefined : lives.find(({ began }) => began === life);
	return known ?? lives.findLast(({ began }) => began === null || began <= time) ?? lives[0];
}

/** Returns how the calls of a list are told apart. Calls without an id are counted for each usage id. */
function idOf({ usageId, id }: Call): string {
	return id === "" ? `\u0000${usageId}` : id;
}

function entriesOf(usageId: string, metrics: Metrics, shown: number, latest: number, life: number | null) {
	const calls = new Map<string, Call>();
	const costs = new Map<string, Cost>();
	const counts = new Map<string, number>();
	const next = (key: string): number => {
		const n = counts.get(key) ?? 0;
		counts.set(key, n + 1);
		return n;
	};
	for (const [position, usage] of metrics.tokenUsages.entries()) {
		const id = responseKey(usage.responseId ?? "");
		const n = next(id);
		const tokens = tokensOf(usage).map(Number);
		const model = nameOf(usage.model || (metrics.modelName ?? ""));
		calls.set(JSON.stringify([usageId, id, n]), { usageId, id, n, position, model, tokens, shown, life });
	}
	for (const { model: name, cost: amount, timestamp } of metrics.costs) {
		const model = nameOf(name ?? metrics.modelName ?? "");
		const cost = Number(costUnits(amount ?? 0));
		const at = timestamp === undefined ? null : microseconds(timestamp);
		const n = next(JSON.stringify([model, cost, at]));
		const entry = { usageId, model, cost, at, n, shown, life };
		const isAhead = at !== null && at > latest;
		costs.set(JSON.stringify([usageId, model, cost, at, n]), isAhead ? { ...entry, isAhead } : entry);
	}
	return { calls, costs };
}

/** Puts an entry of a list beside what is known of it: it was shown first at the earliest time. */
function put<Entry extends Call | Cost>(entries: Map<string, Entry>, key: string, entry: Entry): void {
	const known = entries.get(key);
	if (known === undefined) return void entries.set(key, entry);
	const life =
		known.life === null || entry.life === null ? (known.life ?? entry.life) : Math.min(known.life, entry.life);
	const shown = Math.min(known.shown, entry.shown);
	const ahead = "isAhead" in known || !("isAhead" in entry) ? {} : { isAhead: entry.isAhead };
	if (shown !== known.shown || life !== known.life || "isAhead" in ahead)
		entries.set(key, { ...known, shown, life, ...ahead });
}

/** Returns the time of a cost; null if it has none that counts. */
function timeOf({ at, isAhead }: Cost): number | null {
	return isAhead === true ? null : at;
}

function putStep(steps: Map<string, Step>, key: string, step: Step): void {
	const known = steps.get(key);
	if (known === undefined) return void steps.set(key, step);
	const isMore = step.totals.some((total, n) => total > (known.totals[n] ?? 0));
	const totals = known.totals.map((total, n) => Math.max(total, step.totals[n] ?? 0));
	steps.set(key, { ...known, model: isMore ? step.model : known.model, totals });
}

function tokensOf(usage: Metrics["tokenUsages"][number] | undefined): readonly bigint[] {
	return [
		usage?.promptTokens ?? 0n,
		usage?.completionTokens ?? 0n,
		usage?.cacheReadTokens ?? 0n,
		usage?.cacheWriteTokens ?? 0n,
		usage?.reasoningTokens ?? 0n,
	];
}

function hasLists({ costs, tokenUsages, responseLatencies }: Metrics): boolean {
	return costs.length + tokenUsages.length + responseLatencies.length > 0;
}

/** Returns the totals in the order of AMOUNTS. The number of calls is that of the longest list. */
function totalsOf({ accumulatedCost = 0, accumulatedTokenUsage, ...lists }: Metrics): readonly bigint[] {
	const { costs, tokenUsages, responseLatencies } = lists;
	const calls = Math.max(costs.length, tokenUsages.length, responseLatencies.length);
	return [costUnits(accumulatedCost), ...tokensOf(accumulatedTokenUsage), BigInt(calls)];
}

function amountsOfCall({ tokens }: Call): Amounts {
	return mapAmounts((name, n) => (name === "cost" ? 0n : name === "calls" ? 1n : limit(BigInt(tokens[n - 1] ?? 0))));
}

function amountsOfCost({ cost }: Cost): Amounts {
	return { ...ZERO, cost: limit(BigInt(cost)) };
}

/** Returns the number of the quarter of an hour at a time in microseconds. */
export function quarterOf(time: bigint): bigint {
	return time < 0n ? (time - QUARTER + 1n) / QUARTER : time / QUARTER;
}

/** Converts seconds since the Unix epoch to microseconds. Times beyond the years 1 to 9999 end at their limits. */
function microseconds(seconds: number): number {
	const limited = Math.min(Math.max(Number.isNaN(seconds) ? 0 : seconds, -62_135_596_800), 253_402_300_799);
	return Math.round(limited * 1e6);
}

/** Rows with one sum for each key. */
class Rows {
	readonly #byKey = new Map<string, UsageRow>();

	add(row: UsageRow): void {
		if (isZero(row)) return;
		const key = JSON.stringify([row.usageId, row.model, row.agentKind, String(row.quarter)]);
		const known = this.#byKey.get(key);
		this.#byKey.set(key, known === undefined ? row : { ...row, ...addAmounts(known, row) });
	}

	/** Returns the rows that are not zero. */
	list(): UsageRow[] {
		return [...this.#byKey.values()].filter((row) => !isZero(row));
	}
}

function mapAmounts(value: (name: keyof Amounts, n: number) => bigint): Amounts {
	return {
		cost: value("cost", 0),
		promptTokens: value("promptTokens", 1),
		completionTokens: value("completionTokens", 2),
		cacheReadTokens: value("cacheReadTokens", 3),
		cacheWriteTokens: value("cacheWriteTokens", 4),
		reasoningTokens: value("reasoningTokens", 5),
		calls: value("calls", 6),
	};
}

const ZERO: Amounts = Object.freeze(mapAmounts(() => 0n));
const NO_COPIES: Copies = { entries: new Set(), rest: ZERO };
/** Returns the sum of two amounts; each number ends at the limits of its type. */
export const addAmounts = (a: Amounts, b: Amounts): Amounts => mapAmounts((name) => limit(a[name] + b[name]));
const subtract = (a: Amounts, b: Amounts): Amounts => mapAmounts((name) => limit(a[name] - b[name]));
const isZero = (amounts: Amounts): boolean => AMOUNTS.every((name) => amounts[name] === 0n);
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b);
const most = (a: bigint, b: bigint): bigint => (a > b ? a : b);

function limit(value: bigint): bigint {
	return value > MAX ? MAX : value < MIN ? MIN : value;
}

/** Formats what was seen as JSON text, for the store. */
export function formatSeen({ times, calls, costs, steps, copied, earlier, ...seen }: Seen): string {
	return JSON.stringify({
		...seen,
		...(earlier.length === 0 ? {} : { earlier }),
		...{ times: [...times], copied: [...copied] },
		...{ calls: [...calls.values()], costs: [...costs.values()], steps: [...steps.values()] },
	});
}

/** Parses a text of {@link formatSeen}. */
export function parseSeen(text: string): Seen {
	const stored: {
		readonly times: readonly (readonly [string, number])[];
		readonly calls: readonly Call[];
		readonly costs: readonly Cost[];
		readonly steps: readonly Step[];
		readonly lives: readonly Life[];
		readonly first?: First;
		readonly firstEventAt?: number;
		readonly copied: readonly (readonly [string, number])[];
		readonly earlier?: readonly EarlierRow[];
	} = JSON.parse(text);
	const { times, calls, costs, steps, lives, first, firstEventAt, copied, earlier = [] } = stored;
	return {
		...{ times: new Map(times), copied: new Map(copied), lives, first, firstEventAt, earlier },
		calls: new Map(calls.map((call) => [JSON.stringify([call.usageId, call.id, call.n]), call])),
		costs: new Map(costs.map((cost) => [JSON.stringify([cost.usageId, cost.model, cost.cost, cost.at, cost.n]), cost])),
		steps: new Map(steps.map((step) => [JSON.stringify([step.usageId, step.life, step.quarter]), step])),
	};
}

/** Returns the amounts that take back others. */
export function negated(amounts: Amounts): Amounts {
	return subtract(ZERO, amounts);
}

/** Returns the sum of rows. */
export function sumOf(list: readonly Amounts[]): Amounts {
	return list.reduce<Amounts>(addAmounts, ZERO);
}
