import { createHash } from "node:crypto";
import type { ConversationStats, Metrics } from "../../gen/conversations/v1/stats_pb.js";
import { costUnits, metricsOf } from "../record/stats.ts";
import {
	AMOUNTS,
	type Amounts,
	type AmountTexts,
	addAmounts,
	amountsOf,
	greater,
	isNothing,
	mapAmounts,
	NOTHING,
	negated,
	subtract,
	sumOf,
	textsOf,
	tokensOf,
	totalsOf,
} from "./amounts.ts";
import { nameOf, responseKey } from "./names.ts";

/**
 * What the calls of models of a conversation cost, by usage id, model and quarter of an hour. The rows of a life add up to the
 * `stats` of its last record, less what a fork took over from its source.
 *
 * `stats` are cumulative, so a record is followed by adding what it has beyond the one before:
 *
 * - A listed cost is booked at its own time; one without a time, or with one ahead of the clock, at that of the record.
 * - The tokens of a listed call are booked at the time of the first event with its response id, else at that of the cost at the
 *   same place, if the lists have the same length, else at that of the record that first lists it.
 * - What the totals have beyond the lists is booked when a record first shows it, and stays there. Totals that shrink take back
 *   the latest of these bookings.
 *
 * Times are microseconds of Unix time.
 */

/** Length of a quarter of an hour in microseconds. */
const QUARTER = 900_000_000n;

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

/** What the stats of a record show of a usage id. */
export interface ShownUsage {
	readonly usageId: string;
	readonly model: string;
	readonly totals: Amounts;
	readonly lists: Lists;
}

/** What a record shows. */
export interface ShownRecord {
	/** Sequence of its update. */
	readonly sequence: bigint;
	/** Digest of its stats. */
	readonly digest: string;
	readonly usages: readonly ShownUsage[];
	readonly time: number;
	/** The latest time that a cost can have: a little after the receipt. A later one counts as no time. */
	readonly latest: number;
	/** `created_at`; undefined if it is not known: then the record belongs to the present life. */
	readonly life: number | undefined;
	readonly agentKind: string;
	readonly isFork: boolean;
	/** Orders the records of a life. */
	readonly rank: number;
	/** Whether it was the conversation's current record. Another one counts only for a life that has ended. */
	readonly isCurrent: boolean;
}

/** What the record itself does not tell. */
export interface Evidence {
	/** The times of the first events with responses, by {@link responseKey}. */
	readonly times: ReadonlyMap<string, number>;
	/** What the earliest event of a fork shows; null if that is no full state, undefined if it is not known. */
	readonly first: FirstState | null | undefined;
}

/** The full state with which the events of a fork begin: what it took over. */
export interface FirstState {
	/** The time of the latest cost. */
	readonly lastCost: number | null;
	/** By usage id: the number of listed calls, the digest of these, and the part of the totals that no list explains. */
	readonly usages: ByUsage<readonly [calls: number, digest: string, rest: AmountTexts]>;
}

/** A call of the present life that no event has timed yet: its tokens move from its quarter when one arrives. */
export interface UntimedCall extends Omit<UsageRow, "agentKind"> {
	/** Its place in the list of the usage id. */
	readonly position: number;
	/** See {@link responseKey}. */
	readonly responseId: string;
}

/** By usage id. */
type UntimedCalls = Map<string, readonly UntimedCall[]>;

/** Values by usage id. These are texts of senders, so they cannot be names of members. */
type ByUsage<Value> = readonly (readonly [usageId: string, value: Value])[];

/** What was booked of a usage id in a life. */
interface Booked {
	/** How much of the lists, and the digest of that. */
	readonly calls: number;
	readonly costs: number;
	readonly digest: string;
	/** How many of the calls a fork took over, and what these and the costs before it add up to. */
	readonly copied: number;
	readonly taken: AmountTexts;
	/** What the first record of a fork showed beside the lists. */
	readonly first: AmountTexts;
	/** What no list explains, in the order in which it was booked. */
	readonly rest: readonly RowTexts[];
}

interface Life {
	/** `created_at`; null while it is not known. */
	readonly began: number | null;
	/** Of the last record. */
	readonly rank: number;
	readonly agentKind: string;
	readonly usages: ByUsage<Booked>;
	/**
	 * When it became a fork; null of a life that is none, or not known to be one. It stays a fork when its source is erased, and
	 * its records name none then.
	 */
	readonly forkedAt: number | null;
	/** The rows of a life that is not the present one. */
	readonly rows: readonly RowTexts[] | null;
}

type RowTexts = readonly [usageId: string, model: string, agentKind: string, quarter: string, amounts: AmountTexts];

interface State {
	/** 1 if the rows are those of release 1.0.0, and no record was followed since. */
	version: 1 | 2;
	/** Sequence of the last update that was followed. */
	followed: string;
	/** Digest of the stats that were followed last. */
	seen: string;
	lives: readonly Life[];
	/** Rows that release 1.0.0 counted and that no record explains. They stay. */
	earlier: readonly RowTexts[];
	firstState?: FirstState | null | undefined;
}

const NEW_LIFE = { usages: [], forkedAt: null, rows: null };
const NOT_BOOKED: Booked = { calls: 0, costs: 0, digest: "", copied: 0, taken: [], first: [], rest: [] };

/** The usage of one conversation. */
export class Ledger {
	readonly #state: State;
	/** Those of the present life. */
	#rows = new Rows();
	readonly #untimed: UntimedCalls = new Map();

	/** @param text result of {@link format}, or of release 1.0.0; empty for a conversation of which nothing is known */
	constructor(text = "") {
		const parsed: State | undefined = text === "" ? undefined : JSON.parse(text);
		const version = parsed === undefined ? 2 : 1;
		this.#state = parsed?.version === 2 ? parsed : { version, followed: "0", seen: "", lives: [], earlier: [] };
	}

	/** Takes the rows of the conversation. To be called once, before {@link follow} and {@link time}. */
	load(rows: readonly UsageRow[]): void {
		this.#rows = new Rows([...rows, ...this.#others().map(taking)]);
	}

	/**
	 * Adds the untimed calls of the conversation. To be called once: before {@link time}, and before a record is followed that
	 * does not continue what is booked (see {@link plan}).
	 */
	loadUntimed(calls: readonly UntimedCall[]): void {
		for (const [usageId, of] of Map.groupBy(calls, (call) => call.usageId))
			this.#untimed.set(usageId, [...of, ...(this.#untimed.get(usageId) ?? [])]);
	}

	/** Formats what was followed as JSON text. Its size does not depend on the number of calls. */
	format(): string {
		return JSON.stringify(this.#state);
	}

	/** The rows that are not zero. */
	get rows(): readonly UsageRow[] {
		return new Rows([...this.#rows.list(), ...this.#others()]).list();
	}

	/** The untimed calls that were loaded or added, and have not been timed or dropped. */
	get untimed(): readonly UntimedCall[] {
		return [...this.#untimed.values()].flat();
	}

	/** `created_at` of the present life; null if it is not known. */
	get lifeBeganAt(): number | null {
		return this.#present()?.began ?? null;
	}

	/** Whether the present life is known to be a fork. */
	get isFork(): boolean {
		return (this.#present()?.forkedAt ?? null) !== null;
	}

	get firstState(): FirstState | null | undefined {
		return this.#state.firstState;
	}

	/** Returns whether an update, or a later one, was followed. To follow an older record again would book it anew. */
	hasFollowed(sequence: bigint): boolean {
		return sequence <= BigInt(this.#state.followed);
	}

	/** Returns whether a current record with the same stats was followed last, so that it changes nothing. */
	hasSeen({ life, agentKind, digest }: Pick<ShownRecord, "life" | "agentKind" | "digest">): boolean {
		const present = this.#present();
		const isPresent = life === undefined || life === present?.began;
		return this.#state.seen === digest && isPresent && present?.agentKind === nameOf(agentKind);
	}

	/**
	 * Returns the ids of the responses whose times {@link follow} needs, and whether the lists of the record begin with those that
	 * are booked, so that nothing is booked anew.
	 */
	plan(record: ShownRecord): { readonly responses: readonly string[]; readonly isContinued: boolean } {
		const life = this.#present();
		const known = new Map(life?.usages);
		const mayContinue = !record.isFork && (record.life === undefined || record.life === life?.began);
		const plans = record.usages.map(({ usageId, lists }) => {
			const booked = known.get(usageId) ?? NOT_BOOKED;
			const isContinued = mayContinue && lists.begin(booked);
			const calls = lists.calls.slice(isContinued ? booked.calls : 0);
			return { isContinued, responses: calls.flatMap(({ id }) => (id === "" ? [] : [id])) };
		});
		return {
			responses: [...new Set(plans.flatMap(({ responses }) => responses))],
			isContinued: plans.every(({ isContinued }) => isContinued),
		};
	}

	/** Follows a record. Of a life that has ended its last record counts. */
	follow(record: ShownRecord, evidence: Evidence): void {
		const state = this.#state;
		const present = this.#present();
		const known = this.#lifeOf(record.life);
		if (!this.hasFollowed(record.sequence)) state.followed = String(record.sequence);
		if (!record.isCurrent && (known === present || (known !== undefined && record.rank < known.rank))) return;
		const isOfRelease1 = state.version === 1;
		const former = this.#rows.list();
		const rows = known === present && !isOfRelease1 ? this.#rows : new Rows(known?.rows?.map(rowOf));
		const agentKind = nameOf(record.agentKind);
		if (known !== undefined && known.agentKind !== agentKind)
			for (const row of rows.list()) {
				rows.add(taking(row));
				rows.add({ ...row, agentKind });
			}
		if (record.isCurrent) {
			Object.assign(state, { version: 2, seen: record.digest });
			if (evidence.first !== undefined) state.firstState = evidence.first;
			if (known !== present) this.#untimed.clear();
			this.#rows = rows;
		}
		const began = record.life ?? known?.began ?? null;
		const life = book(
			{ ...NEW_LIFE, ...known, began, rank: record.rank, agentKind },
			rows,
			record.isCurrent ? this.#untimed : new Map(),
			record,
			{ ...evidence, first: state.firstState },
			known === undefined,
		);
		const others = state.lives.filter((one) => one !== known);
		const ended = record.isCurrent ? present : undefined;
		state.lives = [
			...others.map((one) => (one === ended ? { ...one, rows: former.map(rowTexts) } : one)),
			{ ...life, rows: record.isCurrent ? null : rows.list().map(rowTexts) },
		];
		// No report changes by the new version: what the record does not explain as before stays as it was.
		if (isOfRelease1) state.earlier = new Rows([...former, ...rows.list().map(taking)]).list().map(rowTexts);
	}

	/** Moves the tokens of untimed calls to the times of events with their responses. The first event of a response counts. */
	time(events: readonly { readonly responseId: string; readonly at: number }[]): void {
		const agentKind = this.#present()?.agentKind ?? "";
		const times = new Map(events.toReversed().map(({ responseId, at }) => [responseId, at]));
		for (const [usageId, calls] of this.#untimed) {
			for (const { responseId, position: _, ...row } of calls) {
				const time = times.get(responseId);
				if (time === undefined) continue;
				this.#rows.add(taking({ ...row, agentKind }));
				this.#rows.add({ ...row, agentKind, quarter: quarterAt(time) });
			}
			this.#untimed.set(
				usageId,
				calls.filter(({ responseId }) => !times.has(responseId)),
			);
		}
	}

	#present(): Life | undefined {
		return this.#state.lives.find(({ rows }) => rows === null);
	}

	#lifeOf(life: number | undefined): Life | undefined {
		const { lives } = this.#state;
		if (life === undefined) return this.#present();
		return lives.find(({ began }) => began === life) ?? lives.find(({ began }) => began === null);
	}

	/** Returns the rows that do not belong to the present life. */
	#others(): readonly UsageRow[] {
		const { lives, earlier } = this.#state;
		return [...earlier, ...lives.flatMap(({ rows }) => rows ?? [])].map(rowOf);
	}
}

/**
 * Books what a record has beyond what is booked of its life. Returns the life with what is booked then.
 *
 * @param life as it was, but for what is known of the record without its stats
 * @param rows those of the life, which are changed
 * @param untimed those of the life, which are changed
 * @param isFirst whether it is the first record of the life
 */
function book(
	life: Life,
	rows: Rows,
	untimed: UntimedCalls,
	record: ShownRecord,
	evidence: Evidence,
	isFirst: boolean,
): Life {
	const now = quarterAt(record.time);
	/** See {@link Life.forkedAt}. */
	const forkedAt = record.isFork || life.forkedAt !== null ? (life.began ?? 0) : null;
	const { first } = evidence;
	/** The first full state, if it shows what the fork took over and nothing else. */
	const firstState = first && (first.lastCost === null || first.lastCost < (forkedAt ?? 0)) ? first : undefined;
	const bookedBefore = new Map(life.usages);
	const shown = new Set(record.usages.map(({ usageId }) => usageId));
	const gone = life.usages.filter(([usageId]) => !shown.has(usageId));
	for (const [usageId] of gone) {
		takeBack(rowsOf(usageId));
		untimed.delete(usageId);
	}
	const usages = [
		...gone.map(([usageId, { first }]) => [usageId, { ...NOT_BOOKED, first }] as const),
		...record.usages.map(
			(usage) => [usage.usageId, bookUsage(usage, bookedBefore.get(usage.usageId) ?? NOT_BOOKED)] as const,
		),
	];
	return { ...life, usages, forkedAt };

	function rowsOf(usageId: string): UsageRow[] {
		return rows.list().filter((row) => row.usageId === usageId);
	}

	function takeBack(booked: readonly UsageRow[]): void {
		for (const row of booked) rows.add(taking(row));
	}

	/** Adds amounts to a row of the life. */
	function add(row: Omit<UsageRow, "agentKind">): void {
		rows.add({ ...row, agentKind: life.agentKind });
	}

	function bookUsage(usage: ShownUsage, known: Booked): Booked {
		const { usageId, totals, lists } = usage;
		const listed = lists.isEmpty ? known : bookLists(usage, known);
		const booked = isFirst && forkedAt !== null ? { ...listed, first: firstOf(usage, listed) } : listed;
		const taken = takenOf(usage, booked);
		const sum = sumOf(rowsOf(usageId));
		const missing = mapAmounts((name) => {
			// Without lists the number of calls is not known.
			if (name === "calls" && lists.isEmpty) return 0n;
			const left = totals[name] - taken[name];
			return (left < 0n ? 0n : left) - sum[name];
		});
		// Each cost of the lists is rounded.
		const isRounding = (missing.cost < 0n ? -missing.cost : missing.cost) <= BigInt(lists.costs.length + 1);
		return { ...booked, rest: bookRest(usage, booked, isRounding ? { ...missing, cost: 0n } : missing) };
	}

	/** Books the entries of the lists that are not booked. When the lists do not begin with those that are, all anew. */
	function bookLists({ usageId, lists }: ShownUsage, known: Booked): Booked {
		const copied = forkedAt === null ? 0 : copiedCalls(usageId, lists);
		const isSame = copied === known.copied && forkedAt === life.forkedAt;
		const isContinued = isSame && lists.begin(known);
		if (!isContinued) takeBack(new Rows([...rowsOf(usageId), ...restRows(known).map(taking)]).list());
		const former = new Map(untimed.get(usageId)?.map((call) => [call.position, call]));
		const untimedCalls = isContinued ? [...former.values()] : [];
		const from = isContinued ? known : NOT_BOOKED;
		const orNow = (time: number | undefined) => (time === undefined ? now : quarterAt(time));
		const timeOf = ({ at }: ListedCost) => (at !== undefined && at <= record.latest ? at : undefined);
		for (const cost of lists.costs.slice(from.costs))
			if (isOwn(cost)) add({ usageId, model: cost.model, quarter: orNow(timeOf(cost)), ...NOTHING, cost: cost.units });
		const isPaired = lists.calls.length === lists.costs.length;
		const firstCall = Math.max(from.calls, copied);
		for (const [n, { id, model, tokens }] of lists.calls.slice(firstCall).entries()) {
			const position = firstCall + n;
			const paired = isPaired ? lists.costs[position] : undefined;
			const event = evidence.times.get(id);
			const time = event ?? (paired && timeOf(paired));
			// One that is booked anew stays where it was shown first.
			const before = former.get(position);
			const quarter = time === undefined && before?.responseId === id ? before.quarter : orNow(time);
			const row = { usageId, model, quarter, ...tokens, calls: 1n };
			add(row);
			if (event === undefined && id !== "") untimedCalls.push({ ...row, position, responseId: id });
		}
		untimed.set(usageId, untimedCalls);
		const copies = lists.costs.filter((cost) => !isOwn(cost));
		const tokens = sumOf(lists.calls.slice(0, copied).map((call) => call.tokens));
		// A call whose tokens are not listed has a cost.
		const calls = BigInt(Math.max(copied, copies.length));
		const taken = { ...tokens, cost: copies.reduce((all, { units }) => all + units, 0n), calls };
		const ends = { calls: lists.calls.length, costs: lists.costs.length };
		return {
			...{ ...known, ...ends, digest: lists.digest(ends), copied },
			taken: isNothing(taken) ? [] : textsOf(taken),
		};
	}

	/** Returns whether a cost is the fork's own. One without a time is. */
	function isOwn({ at }: ListedCost): boolean {
		return forkedAt === null || at === undefined || at > record.latest || at >= forkedAt;
	}

	/**
	 * Returns how many calls a fork took over: they stand at the beginning of the list. There are at least as many as costs from
	 * before the fork, and as many own calls as own costs.
	 */
	function copiedCalls(usageId: string, lists: Lists): number {
		const copies = lists.costs.filter((cost) => !isOwn(cost)).length;
		const own = lists.costs.length - copies;
		const most = Math.max(copies, lists.calls.length - own);
		const told = Math.min(toldCopies(usageId, lists), most);
		return Math.max(told, Math.min(copies, lists.calls.length));
	}

	/**
	 * Returns how many calls are copies by the fork's first full state; else own are the calls from the first one on that has an
	 * event since the fork. Without one, only costs tell copies: unless it is asked to keep them, the agent server resets the
	 * metrics of a fork.
	 */
	function toldCopies(usageId: string, lists: Lists): number {
		const { calls, costs } = lists;
		if (firstState !== undefined) {
			const [count = 0, digest = ""] = new Map(firstState.usages).get(usageId) ?? [];
			return lists.digest({ calls: count, costs: 0 }) === digest ? count : 0;
		}
		const began = forkedAt ?? 0;
		// Metrics that were reset have no costs from before.
		if (costs.length > 0 && costs.every((cost) => isOwn(cost))) return 0;
		const firstOwn = calls.findIndex(({ id }) => (evidence.times.get(id) ?? began - 1) >= began);
		return Math.max(0, firstOwn);
	}

	/** Returns what the first record of a fork shows beside the lists; nothing if it shows own calls. */
	function firstOf({ totals, lists: { calls, costs } }: ShownUsage, { copied }: Booked): AmountTexts {
		const hasOwn = costs.some((cost) => isOwn(cost)) || calls.length > copied;
		return hasOwn ? [] : textsOf(restOf(totals, calls, costs));
	}

	/** Returns what a fork took over of a usage id. */
	function takenOf({ usageId, totals }: ShownUsage, booked: Booked): Amounts {
		if (forkedAt === null) return NOTHING;
		const [count = 0, , texts = []] = new Map(firstState?.usages).get(usageId) ?? [];
		const rest = amountsOf(firstState === undefined ? booked.first : texts);
		// Metrics that were reset have nothing of it.
		const isLost = count > 0 && booked.calls > 0 && booked.copied < count;
		const isTaken = !isLost && AMOUNTS.every((name) => name === "calls" || rest[name] <= totals[name]);
		const listed = amountsOf(booked.taken);
		return isTaken ? { ...addAmounts(listed, rest), calls: greater(listed.calls, rest.calls) } : listed;
	}

	function restRows({ rest }: Booked): UsageRow[] {
		return rest.map((texts) => ({ ...rowOf(texts), agentKind: life.agentKind }));
	}

	/** Books what no list explains, or takes back the latest of it. Returns what is booked then. */
	function bookRest({ usageId, model }: ShownUsage, booked: Booked, missing: Amounts): Booked["rest"] {
		if (isNothing(missing)) return booked.rest;
		const rest = restRows(booked);
		let left = missing;
		const changes = rest.toReversed().map((row) => {
			const back = mapAmounts((name) => {
				if (left[name] >= 0n || row[name] <= 0n) return 0n;
				return row[name] < -left[name] ? -row[name] : left[name];
			});
			left = subtract(left, back);
			return { ...row, ...back };
		});
		changes.push({ usageId, model, agentKind: life.agentKind, quarter: now, ...left });
		for (const change of changes) rows.add(change);
		return new Rows([...rest, ...changes]).list().map(rowTexts);
	}
}

/** An entry of a list of token usages. */
interface ListedCall {
	/** See {@link responseKey}; empty if the list does not tell it. */
	readonly id: string;
	readonly model: string;
	readonly tokens: Amounts;
	/** What it has in common with its copies. An ACP agent gives all calls of its session, and of a fork, one id. */
	readonly key: string;
}

/** An entry of a list of costs. */
interface ListedCost {
	readonly model: string;
	readonly units: bigint;
	readonly at: number | undefined;
}

interface Lists {
	readonly calls: readonly ListedCall[];
	readonly costs: readonly ListedCost[];
	/** Whether the metrics have no lists: then these are not known. */
	readonly isEmpty: boolean;
	/** Returns the digest of the first entries. */
	digest(counts: Pick<Booked, "calls" | "costs">): string;
	/** Returns whether the lists begin with those that are booked. */
	begin(booked: Booked): boolean;
}

function listsOf({ modelName = "", tokenUsages, costs: listedCosts, responseLatencies }: Metrics): Lists {
	const calls = tokenUsages.map((usage) => {
		const id = responseKey(usage.responseId ?? "");
		const tokens = tokensOf(usage);
		return {
			id,
			model: nameOf(usage.model || modelName),
			tokens,
			key: `${id}\n${AMOUNTS.map((name) => tokens[name]).join()}`,
		};
	});
	const costs = listedCosts.map(({ model, cost, timestamp }) => ({
		model: nameOf(model ?? modelName),
		units: costUnits(cost ?? 0),
		at: timestamp === undefined ? undefined : microseconds(timestamp),
	}));
	const digests = new Map<string, string>();
	const digest = (counts: Pick<Booked, "calls" | "costs">) =>
		digests.getOrInsertComputed(`${counts.calls},${counts.costs}`, () => {
			const ofCalls = calls.slice(0, counts.calls).map(({ key }) => key);
			const ofCosts = costs.slice(0, counts.costs).map(({ units, at }) => `${units},${at}`);
			return digestOf([...ofCalls, "", ...ofCosts].join("\n"));
		});
	return {
		...{ calls, costs, digest, isEmpty: calls.length + costs.length + responseLatencies.length === 0 },
		begin: (booked) =>
			booked.calls <= calls.length &&
			booked.costs <= costs.length &&
			(booked.digest === "" || booked.digest === digest(booked)),
	};
}

/** Returns what totals have beyond lists. */
function restOf(totals: Amounts, calls: readonly ListedCall[], costs: readonly ListedCost[]): Amounts {
	const listed = sumOf(calls.map(({ tokens }) => ({ ...tokens, calls: 1n })));
	const cost = costs.reduce((sum, { units }) => sum + units, 0n);
	return mapAmounts((name) => {
		const rest = totals[name] - (name === "cost" ? cost : listed[name]);
		return rest > 0n ? rest : 0n;
	});
}

/** Returns what stats show, by usage id. */
export function shownUsages(stats: ConversationStats): readonly ShownUsage[] {
	return metricsOf(stats).map(([name, metrics]) => ({
		...{ usageId: nameOf(name), model: nameOf(metrics.modelName ?? "") },
		...{ totals: totalsOf(metrics), lists: listsOf(metrics) },
	}));
}

/** Returns what the full state with which a fork begins shows. */
export function firstStateOf(stats: ConversationStats): FirstState {
	const shown = shownUsages(stats);
	const times = shown.flatMap(({ lists }) => lists.costs.flatMap(({ at }) => at ?? []));
	const usages = shown.map(({ usageId, totals, lists }) => {
		const { calls, costs } = lists;
		const digest = lists.digest({ calls: calls.length, costs: 0 });
		return [usageId, [calls.length, digest, textsOf(restOf(totals, calls, costs))]] as const;
	});
	return { lastCost: times.length === 0 ? null : times.reduce((a, b) => Math.max(a, b)), usages };
}

/** Returns a digest by which stats, or parts of them, are told apart. */
export function digestOf(shown: Uint8Array | string): string {
	return createHash("sha1").update(shown).digest("base64url").slice(0, 16);
}

/** As {@link quarterOf}, at a floating-point number of microseconds. */
export function quarterAt(time: number): bigint {
	return quarterOf(BigInt(Math.trunc(time)));
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

	constructor(rows: readonly UsageRow[] = []) {
		for (const row of rows) this.add(row);
	}

	add(row: UsageRow): void {
		if (isNothing(row)) return;
		const key = JSON.stringify([row.usageId, row.model, row.agentKind, String(row.quarter)]);
		const known = this.#byKey.get(key);
		const sum = known === undefined ? row : { ...row, ...addAmounts(known, row) };
		if (isNothing(sum)) this.#byKey.delete(key);
		else this.#byKey.set(key, sum);
	}

	list(): UsageRow[] {
		return [...this.#byKey.values()];
	}
}

/** Returns the row that takes back another one. */
function taking(row: UsageRow): UsageRow {
	return { ...row, ...negated(row) };
}

function rowTexts({ usageId, model, agentKind, quarter, ...amounts }: UsageRow): RowTexts {
	return [usageId, model, agentKind, String(quarter), textsOf(amounts)];
}

function rowOf([usageId, model, agentKind, quarter, amounts]: RowTexts): UsageRow {
	return { usageId, model, agentKind, quarter: BigInt(quarter), ...amountsOf(amounts) };
}
