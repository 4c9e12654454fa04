import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ConversationStats, ConversationStatsSchema } from "../../gen/conversations/v1/stats_pb.js";
import { costUnits } from "../../src/record/stats.ts";
import { type Amounts, NOTHING as NONE, sumOf } from "../../src/usage/amounts.ts";
import {
	type FirstState,
	firstStateOf,
	Ledger,
	type ShownRecord,
	shownUsages,
	type UntimedCall,
	type UsageRow,
} from "../../src/usage/ledger.ts";

/** A call of a model. Times are seconds of Unix time. */
interface Call {
	readonly usageId: string;
	readonly model: string;
	readonly at: number;
	readonly cost: number;
	readonly prompt: number;
	readonly hasEvent: boolean;
}

/** What arrives of a conversation. */
type Arrival = (followed: Conversation) => void;

/** A conversation of which all is followed, stored and read again after each arrival. */
class Conversation {
	rows: readonly UsageRow[] = [];
	#text = "";
	#sequence = 0n;
	readonly #times = new Map<string, number>();
	#untimed: readonly UntimedCall[] = [];
	#first: { readonly at: number; readonly state: FirstState | null } | undefined;

	change(work: (ledger: Ledger) => void): void {
		const ledger = new Ledger(this.#text);
		ledger.load(this.rows);
		ledger.loadUntimed(this.#untimed);
		work(ledger);
		this.#text = ledger.format();
		this.rows = ledger.rows;
		this.#untimed = ledger.untimed;
	}

	event(at: number, responseId: string | undefined, state: FirstState | null = null): void {
		if (this.#first === undefined || at < this.#first.at) this.#first = { at, state };
		if (responseId === undefined || this.#times.has(responseId)) return;
		this.#times.set(responseId, at);
		this.change((ledger) => ledger.time([{ responseId, at }]));
	}

	record(
		stats: ConversationStats,
		time: number,
		{ isFork = false, isCurrent = true, agentKind = "Agent", life = micros(CREATED) }: Partial<ShownRecord>,
	): void {
		this.#sequence += 1n;
		const of = { latest: time + 300e6, life, agentKind, isFork, rank: time, isCurrent };
		const shown = { sequence: this.#sequence, digest: String(time), usages: shownUsages(stats), time, ...of };
		this.change((ledger) => {
			const first = isFork ? this.#first?.state : undefined;
			ledger.follow(shown, { times: this.#times, first });
		});
	}
}

const HOUR = 3600;
const CREATED = 1_800_000_000;
const call: fc.Arbitrary<Omit<Call, "at">> = fc.record({
	usageId: fc.constantFrom("agent", "condenser"),
	model: fc.constantFrom("a", "b"),
	cost: fc.constantFrom(0, 0.003075, 1e-9, 0.1, 12.5),
	prompt: fc.integer({ min: 1, max: 5000 }),
	hasEvent: fc.boolean(),
});

/** Returns the stats after calls, as the agent server makes them: costs of zero are not listed. */
function statsAfter(calls: readonly Call[], withLists = true): ConversationStats {
	const usages = [...new Set(calls.map(({ usageId }) => usageId))].map((usageId) => {
		const own = calls.filter((one) => one.usageId === usageId);
		const lists = {
			costs: own.filter(({ cost }) => cost > 0).map(({ model, cost, at }) => ({ model, cost, timestamp: at })),
			tokenUsages: own.map(({ model, prompt, at }) => ({
				...{ model, promptTokens: BigInt(prompt), responseId: String(at) },
			})),
			responseLatencies: own.map(({ model, at }) => ({ model, latency: 1, responseId: String(at) })),
		};
		const totals = {
			modelName: own.at(-1)?.model ?? "",
			accumulatedCost: own.reduce((sum, { cost }) => sum + cost, 0),
			accumulatedTokenUsage: { promptTokens: BigInt(own.reduce((sum, { prompt }) => sum + prompt, 0)) },
		};
		return [usageId, { ...totals, ...(withLists ? lists : {}) }];
	});
	return create(ConversationStatsSchema, { usageToMetrics: Object.fromEntries(usages) });
}

function at(calls: readonly Omit<Call, "at">[], start: number): Call[] {
	return calls.map((one, index) => ({ ...one, at: start + index * 600 }));
}

const micros = (seconds: number): number => seconds * 1e6;

/** A record that is current when it arrives. */
function record(
	stats: ConversationStats,
	seconds: number,
	isFork = false,
	life = CREATED,
	agentKind = "Agent",
): Arrival {
	return (of) => of.record(stats, micros(seconds), { isFork, life: micros(life), agentKind });
}

/** A record of a life that may have ended. */
function late(stats: ConversationStats, seconds: number, life: number): Arrival {
	return (of) => of.record(stats, micros(seconds), { life: micros(life), isCurrent: false });
}

const eventOf = ({ at: time }: Call): Arrival => {
	return (of) => of.event(micros(time), String(time));
};

/** Returns the rows after all has arrived. */
function countAll(all: readonly Arrival[]): readonly UsageRow[] {
	const of = new Conversation();
	for (const arrival of all) arrival(of);
	return of.rows;
}

function sorted(rows: readonly UsageRow[]): readonly UsageRow[] {
	const keyOf = (row: UsageRow) => JSON.stringify([row.usageId, row.model, row.agentKind, String(row.quarter)]);
	return rows.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}

function totalsOf({ usageToMetrics }: ConversationStats): readonly [cost: bigint, prompt: bigint] {
	const metrics = Object.values(usageToMetrics);
	return [
		metrics.reduce((sum, { accumulatedCost }) => sum + costUnits(accumulatedCost ?? 0), 0n),
		metrics.reduce((sum, { accumulatedTokenUsage }) => sum + (accumulatedTokenUsage?.promptTokens ?? 0n), 0n),
	];
}

function expectSum(rows: readonly UsageRow[], stats: ConversationStats, calls: number): void {
	const [sum, [cost, prompt]] = [sumOf(rows), totalsOf(stats)];
	expect(sum.promptTokens).toBe(prompt);
	const difference = sum.cost - cost;
	expect(difference >= -BigInt(calls + 4) && difference <= BigInt(calls + 4)).toBe(true);
}

/** Returns hour and prompt tokens of the rows with tokens. */
function tokensOf(rows: readonly UsageRow[]): readonly (readonly [at: bigint, prompt: bigint])[] {
	const found = rows.filter(({ promptTokens }) => promptTokens !== 0n);
	return sorted(found).map(({ quarter, promptTokens }) => [quarter * 900n, promptTokens] as const);
}

describe("the rows of a conversation", () => {
	const steps = fc.array(fc.record({ upTo: fc.nat(12), withLists: fc.boolean() }), { minLength: 1, maxLength: 8 });

	test("add up to the stats of the last record, with or without lists, also when totals fall", () => {
		fc.assert(
			fc.property(fc.array(call, { maxLength: 12 }), steps, (some, all) => {
				const calls = at(some, CREATED);
				const stats = all.map(({ upTo, withLists }) => statsAfter(calls.slice(0, upTo), withLists));
				const records = stats.map((one, n) => record(one, CREATED + (n + 1) * HOUR));
				const events = calls.filter(({ hasEvent }) => hasEvent).map(eventOf);
				expectSum(countAll([...records, ...events]), stats.at(-1) ?? statsAfter([]), calls.length);
			}),
		);
	});

	test("are the same however often all is followed, in whatever order the events arrive", () => {
		fc.assert(
			fc.property(fc.array(call, { maxLength: 8 }), fc.infiniteStream(fc.nat()), (some, order) => {
				const calls = at(some, CREATED);
				const records = calls.map((_, n) => record(statsAfter(calls.slice(0, n + 1)), CREATED + (n + 1) * HOUR));
				const events = calls.filter(({ hasEvent }) => hasEvent).map(eventOf);
				const end = records.slice(-1);
				const expected = sorted(countAll([...events, ...records]));
				const mixed = [...records];
				for (const event of events) mixed.splice((order.next().value ?? 0) % (mixed.length + 1), 0, event);
				expect(sorted(countAll([...mixed, ...end, ...end, ...events]))).toEqual(expected);
			}),
		);
	});

	test("are the same when only the last record of each quarter of an hour is followed", () => {
		const minutes = fc.array(fc.nat(40), { minLength: 8, maxLength: 8 });
		fc.assert(
			fc.property(fc.array(call, { maxLength: 8 }), minutes, fc.boolean(), (some, gaps, isFree) => {
				// With free calls among others, no place in a list tells which cost is of which call.
				const calls = at(
					some.map((one) => ({ ...one, cost: isFree ? 0 : one.cost + 0.1 })),
					CREATED,
				);
				let time = CREATED + 2 * HOUR;
				const all = calls.map((_, n) => {
					time += (gaps[n] ?? 0) * 60;
					return { stats: statsAfter(calls.slice(0, n + 1)), time };
				});
				const periodOf = (of: number | undefined) => of && Math.floor(of / 900);
				const last = all.filter((one, n) => periodOf(one.time) !== periodOf(all[n + 1]?.time));
				const rowsOf = (records: typeof all) => sorted(countAll(records.map((one) => record(one.stats, one.time))));
				expect(rowsOf(last)).toEqual(rowsOf(all));
			}),
		);
	});

	test("have calls at the time of their event, also of one that arrives last, else of their cost, else of their record", () => {
		const calls = at([call0(0.5, 100), call0(0.25, 200)], CREATED);
		const [first, second] = calls;
		if (first === undefined || second === undefined) throw new Error("there are two calls");
		const free = { ...second, cost: 0 };
		const [shownAt, lastAt] = [CREATED + 2 * HOUR, CREATED + 4 * HOUR].map(BigInt);
		expect(tokensOf(countAll([record(statsAfter(calls), CREATED + 4 * HOUR)]))).toEqual([[BigInt(CREATED), 300n]]);
		// The lists have different lengths, so no place tells which cost is of which call.
		const records = [
			record(statsAfter([free]), CREATED + 2 * HOUR),
			record(statsAfter([free, first]), CREATED + 4 * HOUR),
		];
		expect(tokensOf(countAll(records))).toEqual([
			[shownAt, 200n],
			[lastAt, 100n],
		]);
		expect(tokensOf(countAll([...records, eventOf(free)]))).toEqual([
			[BigInt(CREATED), 200n],
			[lastAt, 100n],
		]);
	});

	test("of totals without lists are at the times at which they grew, and stay there when others are listed", () => {
		const calls = at([call0(0.5, 100), call0(0.25, 200)], CREATED);
		const records = [
			record(statsAfter(calls.slice(0, 1), false), CREATED + HOUR),
			record(statsAfter(calls, false), CREATED + 2 * HOUR),
			record(statsAfter(calls, false), CREATED + 3 * HOUR),
		];
		const grown = [
			[BigInt(CREATED + HOUR), 100n],
			[BigInt(CREATED + 2 * HOUR), 200n],
		];
		expect(tokensOf(countAll(records))).toEqual(grown);
		const more = statsAfter(at([call0(1, 7)], CREATED + 26 * HOUR));
		const { agent } = more.usageToMetrics;
		if (agent?.accumulatedTokenUsage === undefined) throw new Error("there is a usage");
		agent.accumulatedTokenUsage.promptTokens = 307n;
		agent.accumulatedCost = 1.75;
		const nextDay = countAll([...records, record(more, CREATED + 27 * HOUR)]);
		expect(tokensOf(nextDay)).toEqual([...grown, [BigInt(CREATED + 26 * HOUR), 7n]]);
	});

	test("take back the latest of what no list explains when totals shrink", () => {
		const calls = at([call0(0.5, 100), call0(0.25, 200)], CREATED);
		const shrunk = [
			record(statsAfter(calls.slice(0, 1), false), CREATED + HOUR),
			record(statsAfter(calls, false), CREATED + 2 * HOUR),
			record(statsAfter(at([call0(0.6, 150)], CREATED), false), CREATED + 3 * HOUR),
		];
		expect(tokensOf(countAll(shrunk))).toEqual([
			[BigInt(CREATED + HOUR), 100n],
			[BigInt(CREATED + 2 * HOUR), 50n],
		]);
	});

	test("have a cost whose time is ahead of the clock at the time of the record that first lists it", () => {
		const [ahead] = at([call0(1, 10)], CREATED * 1000);
		if (ahead === undefined) throw new Error("there is a call");
		const records = [record(statsAfter([ahead]), CREATED + HOUR), record(statsAfter([ahead]), CREATED + 3 * HOUR)];
		expect(countAll(records).map(({ quarter, cost, promptTokens }) => [quarter * 900n, cost, promptTokens])).toEqual([
			[BigInt(CREATED + HOUR), 1_000_000_000n, 10n],
		]);
	});

	test("count a response once that two usage ids show, with the first of them, and at its own time", () => {
		const stats = statsAfter(at([call0(0.1, 10)], CREATED));
		const { agent } = stats.usageToMetrics;
		if (agent === undefined) throw new Error("there is a usage");
		const both = create(ConversationStatsSchema, { usageToMetrics: { condenser: agent, agent } });
		const alone = create(ConversationStatsSchema, { usageToMetrics: { condenser: agent } });
		const expected = ["agent", BigInt(CREATED), 100_000_000n, 10n, 1n];
		for (const records of [
			[record(both, CREATED + HOUR)],
			// The next day the call is listed of another usage id, too.
			[record(alone, CREATED + HOUR), record(both, CREATED + 25 * HOUR)],
		])
			expect(
				countAll(records).map((row) => [row.usageId, row.quarter * 900n, row.cost, row.promptTokens, row.calls]),
			).toEqual([expected]);
	});

	test("are those of usage ids with the names of members of objects, too", () => {
		const { agent } = statsAfter(at([call0(0.1, 10)], CREATED)).usageToMetrics;
		if (agent === undefined) throw new Error("there is a usage");
		const names = ["__proto__", "constructor", "toString"];
		const usageToMetrics = Object.fromEntries(
			names.map((name, n) => [
				name,
				{ ...agent, tokenUsages: agent.tokenUsages.map((one) => ({ ...one, responseId: `${n}` })) },
			]),
		);
		const stats = create(ConversationStatsSchema, { usageToMetrics });
		for (const isFork of [false, true]) {
			const records = [1, 2].map((hour) => record(stats, CREATED + hour * HOUR, isFork, CREATED - HOUR));
			const own = countAll([
				(of) => of.event(micros(CREATED - 1), undefined, firstStateOf(statsAfter([]))),
				...records,
			]);
			expect(own.map(({ usageId, promptTokens }) => [usageId, promptTokens]).sort()).toEqual(
				Object.keys(stats.usageToMetrics)
					.sort()
					.map((name) => [name, 10n]),
			);
		}
	});

	test("have those of each life, whichever record arrives last", () => {
		const [before, after] = [at([call0(0.5, 100)], CREATED), at([call0(0.25, 200)], CREATED + 10 * HOUR)];
		const again = CREATED + 9 * HOUR;
		const more = at([call0(0.5, 100), call0(2, 1)], CREATED);
		const later = record(statsAfter(after), CREATED + 11 * HOUR, false, again);
		const both = { ...NONE, cost: 750_000_000n, promptTokens: 300n, calls: 2n };
		const first = record(statsAfter(before), CREATED + HOUR);
		expect(sumOf(countAll([first, later]))).toEqual(both);
		expect(sumOf(countAll([later, late(statsAfter(before), CREATED + HOUR, CREATED)]))).toEqual(both);
		expect(sumOf(countAll([first, later, late(statsAfter(more), CREATED + 2 * HOUR, CREATED)]))).toEqual({
			...both,
			...{ cost: 2_750_000_000n, promptTokens: 301n, calls: 3n },
		});
		// An older record of that life, or of the present one, says nothing new.
		expect(
			sumOf(countAll([first, later, late(statsAfter([]), CREATED, CREATED), late(statsAfter([]), 1, again)])),
		).toEqual(both);
	});

	test("of an ended life stay where they are when a later record of it arrives, which adds what it has beyond them", () => {
		const calls = at([call0(0.5, 100), call0(0.25, 200)], CREATED);
		const before = [
			record(statsAfter(calls.slice(0, 1), false), CREATED + HOUR),
			record(statsAfter([]), CREATED + 10 * HOUR, false, CREATED + 9 * HOUR),
		];
		expect(tokensOf(countAll([...before, late(statsAfter(calls, false), CREATED + 2 * HOUR, CREATED)]))).toEqual([
			[BigInt(CREATED + HOUR), 100n],
			[BigInt(CREATED + 2 * HOUR), 200n],
		]);
	});

	test("have the agent kind of the last record, also of a call whose event arrives after the kind changed", () => {
		const calls = at([call0(0, 100)], CREATED);
		const shown = [1, 2].map((hour) =>
			record(statsAfter(calls), CREATED + hour * HOUR, false, CREATED, hour === 1 ? "Agent" : "ACPAgent"),
		);
		const rowsOf = (arrivals: readonly Arrival[]) =>
			countAll(arrivals).map(({ agentKind, quarter, promptTokens }) => [agentKind, quarter * 900n, promptTokens]);
		expect(rowsOf(shown)).toEqual([["ACPAgent", BigInt(CREATED + HOUR), 100n]]);
		expect(rowsOf([...shown, ...calls.map(eventOf)])).toEqual([["ACPAgent", BigInt(CREATED), 100n]]);
	});

	test("do not change by a text of an earlier version, and grow from there", () => {
		const calls = at([call0(0.5, 100), call0(0.25, 200)], CREATED);
		const stored: UsageRow[] = [
			{
				...NONE,
				usageId: "agent",
				model: "a",
				agentKind: "Agent",
				quarter: 7n,
				cost: 1n,
				promptTokens: 90n,
				calls: 1n,
			},
		];
		// Also when it was stored again before a record was followed.
		const ledger = new Ledger(new Ledger('{"times":[],"calls":[]}').format());
		ledger.load(stored);
		expect(ledger.rows).toEqual(stored);
		const follow = (of: Ledger, count: number) =>
			of.follow(
				{
					...{ usages: shownUsages(statsAfter(calls.slice(0, count))), sequence: BigInt(count), digest: String(count) },
					...{ time: micros(CREATED + HOUR), latest: micros(CREATED + HOUR) },
					...{ life: micros(CREATED), agentKind: "Agent", isFork: false, rank: 1, isCurrent: true },
				},
				{ times: new Map(), first: undefined },
			);
		follow(ledger, 1);
		expect(ledger.rows).toEqual(stored);
		const again = new Ledger(ledger.format());
		again.load(ledger.rows);
		expect([1n, 2n].map((sequence) => again.hasFollowed(sequence))).toEqual([true, false]);
		follow(again, 2);
		expect(sumOf(again.rows)).toEqual({ ...NONE, cost: 250_000_001n, promptTokens: 290n, calls: 2n });
	});
});

describe("a fork", () => {
	const source = at([call0(0.5, 100), call0(0.25, 200)], CREATED - HOUR);
	const own = at([call0(1, 1000)], CREATED + HOUR);
	const ownUsage: Amounts = { ...NONE, cost: 1_000_000_000n, promptTokens: 1000n, calls: 1n };
	const end = (calls: readonly Call[]) => record(statsAfter(calls), CREATED + 2 * HOUR, true);
	const fullState = (calls: readonly Call[], time = CREATED + 1): Arrival => {
		return (of) => of.event(micros(time), undefined, firstStateOf(statsAfter(calls)));
	};

	test("is not charged for what it took over, and is for its own calls", () => {
		expect(countAll([end(source)])).toEqual([]);
		expect(sumOf(countAll([end(source), end([...source, ...own])]))).toEqual(ownUsage);
		expect(sumOf(countAll([end([...source, ...own])]))).toEqual(ownUsage);
		expect(sumOf(countAll([...source.map(eventOf), end([...source, ...own])]))).toEqual(ownUsage);
		expect(countAll([end(source), record(statsAfter(source, false), CREATED + 3 * HOUR, true)])).toEqual([]);
	});

	test("is charged for an own call before the first one that has an event, and for one whose cost has no time", () => {
		const more = at([call0(1, 10)], CREATED + 2 * HOUR);
		const rows = countAll([...more.map(eventOf), end([...source, ...own, ...more])]);
		expect(sumOf(rows)).toEqual({ ...ownUsage, cost: 2_000_000_000n, promptTokens: 1010n, calls: 2n });
		const stats = statsAfter([...source, ...own]);
		for (const cost of stats.usageToMetrics.agent?.costs.slice(2) ?? []) cost.timestamp = undefined;
		expect(sumOf(countAll([record(stats, CREATED + 2 * HOUR, true)]))).toEqual(ownUsage);
	});

	const free = at([call0(0, 50)], CREATED + HOUR);
	const freeUsage: Amounts = { ...NONE, promptTokens: 50n, calls: 1n };

	test("counts own calls without a cost by its first event, or else by its costs", () => {
		expect(sumOf(countAll([fullState([]), end(free)]))).toEqual(freeUsage);
		expect(sumOf(countAll([end([...source, ...free]), fullState(source), end([...source, ...free])]))).toEqual(
			freeUsage,
		);
		expect(sumOf(countAll([end(free)]))).toEqual(freeUsage);
		expect(sumOf(countAll([end([...source, ...free])]))).toEqual(freeUsage);
		// The first event was lost, and the first one that is known shows own costs.
		const lateState = fullState([...source, ...own, ...free], CREATED + 2 * HOUR);
		const rows = countAll([lateState, end([...source, ...own, ...free])]);
		expect(sumOf(rows)).toEqual({ ...ownUsage, promptTokens: 1050n, calls: 2n });
	});

	test.each([7777, 5000])(
		"of an ACP agent, whose calls have the id of its session, keeps a call of %i tokens of its own, in each order",
		(prompt) => {
			const statsOf = (promptTokens: number, timestamp: number) =>
				create(ConversationStatsSchema, {
					usageToMetrics: {
						"acp-managed": {
							...{ accumulatedCost: 0.04, accumulatedTokenUsage: { promptTokens: BigInt(promptTokens) } },
							costs: [{ model: "a", cost: 0.04, timestamp }],
							tokenUsages: [{ model: "a", promptTokens: BigInt(promptTokens), responseId: "sess-1" }],
						},
					},
				});
			const taken = statsOf(5000, CREATED - HOUR);
			const stats = statsOf(prompt, CREATED + 5);
			const usage = { ...NONE, cost: 40_000_000n, promptTokens: BigInt(prompt), calls: 1n };
			const shown = record(stats, CREATED + 0.2, true);
			const state = (of: ConversationStats, time: number): Arrival => {
				return (followed) => followed.event(micros(time), undefined, firstStateOf(of));
			};
			const lateState = state(stats, CREATED + 14);
			// With metrics that were reset, the first full state may still show the source's call.
			for (const first of [state(statsAfter([]), CREATED + 0.5), state(taken, CREATED + 0.5)])
				for (const all of [
					[shown],
					[first, lateState, shown],
					[lateState, shown, first, shown],
					[shown, lateState, first, shown],
				])
					expect(sumOf(countAll(all))).toEqual(usage);
		},
	);

	test("whose source was erased before its ledger of an earlier version was written anew grows by its own calls", () => {
		const [calls, [further]] = [[...source, ...own], at([call0(1, 1000)], CREATED + 3 * HOUR)];
		const stored: UsageRow = { ...ownUsage, usageId: "agent", model: "a", agentKind: "Agent", quarter: 7n };
		let ledger = new Ledger('{"times":[],"calls":[]}');
		ledger.load([stored]);
		for (const [n, shown] of [calls, calls, [...calls, ...(further === undefined ? [] : [further])]].entries()) {
			const stats = statsAfter(shown);
			ledger.follow(
				{
					...{ usages: shownUsages(stats), sequence: BigInt(n + 1), digest: String(n) },
					...{ time: micros(CREATED + 4 * HOUR), latest: micros(CREATED + 4 * HOUR) },
					...{ life: micros(CREATED), agentKind: "Agent", isFork: false, rank: n, isCurrent: true },
				},
				{ times: new Map(), first: undefined },
			);
			const rows = ledger.rows;
			ledger = new Ledger(ledger.format());
			ledger.load(rows);
			const isFurther = shown.length > calls.length;
			expect(sumOf(rows)).toEqual(
				isFurther ? { ...NONE, cost: 2_000_000_000n, promptTokens: 2000n, calls: 2n } : ownUsage,
			);
		}
	});

	test("whose source was erased counts the same by a late record of an ended life", () => {
		const of = new Conversation();
		end([...source, ...own])(of);
		const again = CREATED + 9 * HOUR;
		record(statsAfter([]), CREATED + 10 * HOUR, false, again)(of);
		const further = at([call0(1, 1000), call0(1, 1000)], CREATED + HOUR);
		for (const calls of [own, further])
			late(statsAfter([...source, ...calls]), CREATED + (2 + calls.length) * HOUR, CREATED)(of);
		expect(sumOf(of.rows)).toEqual({ ...NONE, cost: 2_000_000_000n, promptTokens: 2000n, calls: 2n });
	});

	test("is the only conversation that is not charged for costs before its creation", () => {
		const stats = statsAfter([...source, ...own]);
		const rows = countAll([record(stats, CREATED + 2 * HOUR)]);
		expectSum(rows, stats, 3);
		expect(sumOf(rows).calls).toBe(3n);
	});
});

test("a sum beyond the range of an integer of 64 bits ends at its limit", () => {
	const stats = create(ConversationStatsSchema, {
		usageToMetrics: { agent: { accumulatedCost: 1e300, accumulatedTokenUsage: { promptTokens: 2n ** 63n - 1n } } },
	});
	const limit = 2n ** 63n - 1n;
	expect(sumOf(countAll([record(stats, CREATED)]))).toEqual({ ...NONE, cost: limit, promptTokens: limit });
});

function call0(cost: number, prompt: number): Omit<Call, "at"> {
	return { usageId: "agent", model: "a", cost, prompt, hasEvent: false };
}
