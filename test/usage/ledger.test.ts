import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ConversationStats, ConversationStatsSchema } from "../../gen/conversations/v1/stats_pb.js";
import { costUnits } from "../../src/record/stats.ts";
import {
	type Amounts,
	addEvent,
	addLastRecord,
	addStats,
	callIds,
	formatSeen,
	nothingSeen,
	parseSeen,
	rowsOf,
	type Seen,
	type SourceCalls,
	sumOf,
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

/** Something that is seen of a conversation. */
type Evidence = (seen: Seen) => void;

const NONE: Amounts = sumOf([]);
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

/** A record that shows stats, and is the current one afterwards if it is the last. */
function shown(stats: ConversationStats, seconds: number, life: number | undefined = CREATED): Evidence {
	const began = life === undefined ? undefined : micros(life);
	return (seen) =>
		addStats(seen, { stats, time: micros(seconds), latest: micros(seconds + 300), life: began, isFullState: false });
}

function last(stats: ConversationStats, seconds: number, isFork = false, life: number | undefined = CREATED): Evidence {
	return (seen) => {
		shown(stats, seconds, life)(seen);
		addLastRecord(seen, {
			...{ stats, time: micros(seconds), life: life === undefined ? undefined : micros(life) },
			...{ isFork, agentKind: "Agent", isCurrent: true, rank: seconds },
		});
	};
}

const eventOf = ({ at: time }: Call): Evidence => {
	return (seen) => addEvent(seen, { time: micros(time), responseId: String(time), isPosted: true });
};

/** Sees all, one after the other, stored and read again between them, and derives rows each time. */
function countAll(all: readonly Evidence[], source?: SourceCalls): UsageRow[] {
	let seen = nothingSeen();
	let rows: UsageRow[] = [];
	for (const see of all) {
		see(seen);
		rows = rowsOf(seen, source);
		seen = parseSeen(formatSeen(seen));
	}
	return rows;
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

describe("the rows of a conversation", () => {
	const steps = fc.array(fc.record({ upTo: fc.nat(12), withLists: fc.boolean() }), { minLength: 1, maxLength: 8 });

	test("add up to the stats of the last record, with or without lists, also when totals fall", () => {
		fc.assert(
			fc.property(fc.array(call, { maxLength: 12 }), steps, (some, all) => {
				const calls = at(some, CREATED);
				const stats = all.map(({ upTo, withLists }) => statsAfter(calls.slice(0, upTo), withLists));
				const records = stats.map((one, n) => last(one, CREATED + (n + 1) * HOUR));
				expectSum(countAll(records), stats.at(-1) ?? statsAfter([]), calls.length);
			}),
		);
	});

	test("are the same in whatever order and however often all is seen", () => {
		fc.assert(
			fc.property(
				fc.array(call, { maxLength: 8 }),
				steps,
				fc.infiniteStream(fc.nat()),
				fc.boolean(),
				(some, all, order, isFork) => {
					const calls = at(some, CREATED);
					const evidence = [
						...all.map(({ upTo, withLists }, n) =>
							shown(statsAfter(calls.slice(0, upTo), withLists), CREATED + (n + 1) * HOUR),
						),
						...calls.filter(({ hasEvent }) => hasEvent).map(eventOf),
					];
					const end = last(statsAfter(calls), CREATED + 20 * HOUR, isFork);
					const keyed = [...evidence, ...evidence].map((see) => ({ see, key: order.next().value ?? 0 }));
					const shuffled = keyed.sort((a, b) => a.key - b.key).map(({ see }) => see);
					const rows = countAll([...evidence, end]);
					expect(sorted(countAll([...shuffled, end, ...shuffled]))).toEqual(sorted(rows));
				},
			),
		);
	});

	test("have calls at the time of their event, also of one that is seen last, or when they were shown first", () => {
		const calls = at([call0(0.5, 100), call0(0.25, 200)], CREATED);
		const [first, second] = calls;
		if (first === undefined || second === undefined) throw new Error("there are two calls");
		const records = [shown(statsAfter([first]), CREATED + 2 * HOUR), last(statsAfter(calls), CREATED + 4 * HOUR)];
		const tokens = (rows: readonly UsageRow[]) =>
			rows.filter(({ promptTokens }) => promptTokens > 0n).map((row) => [row.quarter * 900n, row.promptTokens]);
		const shownAt = [
			[BigInt(CREATED + 2 * HOUR), 100n],
			[BigInt(CREATED + 4 * HOUR), 200n],
		];
		expect(tokens(sorted(countAll(records)))).toEqual(shownAt);
		expect(tokens(sorted(countAll([...records, eventOf(first)])))).toEqual([[BigInt(CREATED), 100n], shownAt[1]]);
	});

	test("of totals without lists are at the times at which they grew", () => {
		const calls = at([call0(0.5, 100), call0(0.25, 200)], CREATED);
		const records = [
			last(statsAfter(calls.slice(0, 1), false), CREATED + HOUR),
			last(statsAfter(calls, false), CREATED + 2 * HOUR),
			last(statsAfter(calls, false), CREATED + 3 * HOUR),
		];
		expect(sorted(countAll(records)).map(({ quarter, promptTokens }) => [quarter * 900n, promptTokens])).toEqual([
			[BigInt(CREATED + HOUR), 100n],
			[BigInt(CREATED + 2 * HOUR), 200n],
		]);
	});

	test("have a cost whose time is ahead of the clock at the time at which it was shown first, in each order", () => {
		const [ahead] = at([call0(1, 10)], CREATED * 1000);
		if (ahead === undefined) throw new Error("there is a call");
		const records = [last(statsAfter([ahead]), CREATED + HOUR), last(statsAfter([ahead]), CREATED + 3 * HOUR)];
		for (const all of [records, records.toReversed()])
			expect(countAll(all).map(({ quarter, cost }) => [quarter * 900n, cost])).toEqual([
				[BigInt(CREATED + HOUR), 1_000_000_000n],
			]);
	});

	test("count a response once that two usage ids show, with the first of them", () => {
		const stats = statsAfter(at([call0(0.1, 10)], CREATED));
		const { agent } = stats.usageToMetrics;
		if (agent === undefined) throw new Error("there is a usage");
		const both = create(ConversationStatsSchema, { usageToMetrics: { condenser: agent, agent } });
		const rows = countAll([last(both, CREATED + HOUR)]);
		expect(rows.map(({ usageId, cost, promptTokens, calls }) => [usageId, cost, promptTokens, calls])).toEqual([
			["agent", 0n, 10n, 1n],
			["agent", 100_000_000n, 0n, 0n],
		]);
	});

	test("have those of each life, whichever record arrives last", () => {
		const [before, after] = [at([call0(0.5, 100)], CREATED), at([call0(0.25, 200)], CREATED + 10 * HOUR)];
		const again = CREATED + 9 * HOUR;
		const earlier: Evidence = (seen) => {
			shown(statsAfter(before), CREATED + HOUR)(seen);
			addLastRecord(seen, {
				...{ stats: statsAfter(before), time: micros(CREATED + HOUR), life: micros(CREATED), rank: 1 },
				...{ isFork: false, agentKind: "Agent", isCurrent: false },
			});
		};
		const later = last(statsAfter(after), CREATED + 11 * HOUR, false, again);
		for (const all of [
			[earlier, later],
			[later, earlier],
		])
			expect(sumOf(countAll(all))).toEqual({ ...NONE, cost: 750_000_000n, promptTokens: 300n, calls: 2n });
	});
});

describe("a fork", () => {
	const source = at([call0(0.5, 100), call0(0.25, 200)], CREATED - HOUR);
	const own = at([call0(1, 1000)], CREATED + HOUR);
	const ownUsage = { ...NONE, cost: 1_000_000_000n, promptTokens: 1000n, calls: 1n };
	const end = (calls: readonly Call[]) => last(statsAfter(calls), CREATED + 2 * HOUR, true);
	const fullState = (calls: readonly Call[], time = CREATED + 1): Evidence => {
		return (seen) => {
			addEvent(seen, { time: micros(time), isPosted: true });
			addStats(seen, {
				...{ stats: statsAfter(calls), time: micros(time), latest: micros(time + 300) },
				...{ life: undefined, isFullState: true },
			});
		};
	};
	const callsOf = (calls: readonly Call[]): SourceCalls => {
		const seen = nothingSeen();
		last(statsAfter(calls), CREATED)(seen);
		return callIds(seen);
	};

	test("is not charged for what it took over, and is for its own calls, as long as nothing is known of its source", () => {
		expect(countAll([end(source)])).toEqual([]);
		expect(sumOf(countAll([end(source), end([...source, ...own])]))).toEqual(ownUsage);
		expect(sumOf(countAll([end([...source, ...own])]))).toEqual(ownUsage);
		expect(sumOf(countAll([...source.map(eventOf), end([...source, ...own])]))).toEqual(ownUsage);
		expect(countAll([end(source), last(statsAfter(source, false), CREATED + 3 * HOUR, true)])).toEqual([]);
	});

	test("is charged for an own call before the first one that has an event, and for one whose cost has no time", () => {
		const more = at([call0(1, 10)], CREATED + 2 * HOUR);
		const rows = countAll([...more.map(eventOf), end([...source, ...own, ...more])]);
		expect(sumOf(rows)).toEqual({ ...ownUsage, cost: 2_000_000_000n, promptTokens: 1010n, calls: 2n });
		const stats = statsAfter([...source, ...own]);
		for (const cost of stats.usageToMetrics.agent?.costs.slice(2) ?? []) cost.timestamp = undefined;
		expect(sumOf(countAll([last(stats, CREATED + 2 * HOUR, true)]))).toEqual(ownUsage);
	});

	const free = at([call0(0, 50)], CREATED + HOUR);
	const freeUsage = { ...NONE, promptTokens: 50n, calls: 1n };

	test("counts own calls without a cost by its first event, or else by what its source shows", () => {
		expect(sumOf(countAll([end(free), fullState([])]))).toEqual(freeUsage);
		expect(sumOf(countAll([end([...source, ...free]), fullState(source)]))).toEqual(freeUsage);
		expect(sumOf(countAll([end(free)], callsOf(source)))).toEqual(freeUsage);
		expect(sumOf(countAll([end([...source, ...free])], callsOf(source)))).toEqual(freeUsage);
		// The first event was lost, and the first one that is known shows own costs.
		const late = fullState([...source, ...own, ...free], CREATED + 2 * HOUR);
		const rows = countAll([late, end([...source, ...own, ...free])], callsOf(source));
		expect(sumOf(rows)).toEqual({ ...ownUsage, promptTokens: 1050n, calls: 2n });
	});

	test.each([7777, 5000])(
		"of an ACP agent, whose calls have the id of its session, keeps a call of %i tokens of its own",
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
			const of = (stats: ConversationStats) => {
				const seen = nothingSeen();
				last(stats, CREATED - 1)(seen);
				return callIds(seen);
			};
			const acpSource = of(statsOf(5000, CREATED - HOUR));
			const stats = statsOf(prompt, CREATED + 5);
			const usage = { ...NONE, cost: 40_000_000n, promptTokens: BigInt(prompt), calls: 1n };
			const record = last(stats, CREATED + 0.2, true);
			const emptyState = fullState([], CREATED + 0.5);
			const lateState: Evidence = (seen) =>
				addStats(seen, {
					...{ stats, time: micros(CREATED + 14), latest: micros(CREATED + 314), life: undefined, isFullState: true },
				});
			for (const all of [
				[record],
				[emptyState, lateState, record],
				[lateState, record, emptyState],
				[record, lateState, emptyState],
			]) {
				expect(sumOf(countAll(all, acpSource))).toEqual(usage);
				expect(sumOf(countAll(all))).toEqual(usage);
			}
		},
	);

	test("counts the same when its source is not known any more", () => {
		const seen = nothingSeen();
		end([...source, ...free])(seen);
		rowsOf(seen, callsOf(source));
		expect(sumOf(rowsOf(parseSeen(formatSeen(seen)), undefined))).toEqual(freeUsage);
	});

	test("is the only conversation that is not charged for costs before its creation", () => {
		const stats = statsAfter([...source, ...own]);
		const rows = countAll([last(stats, CREATED + 2 * HOUR)]);
		expectSum(rows, stats, 3);
		expect(sumOf(rows).calls).toBe(3n);
	});
});

test("a sum beyond the range of an integer of 64 bits ends at its limit", () => {
	const stats = create(ConversationStatsSchema, {
		usageToMetrics: { agent: { accumulatedCost: 1e300, accumulatedTokenUsage: { promptTokens: 2n ** 63n - 1n } } },
	});
	const limit = 2n ** 63n - 1n;
	expect(sumOf(countAll([last(stats, CREATED)]))).toEqual({ ...NONE, cost: limit, promptTokens: limit });
});

function call0(cost: number, prompt: number): Omit<Call, "at"> {
	return { usageId: "agent", model: "a", cost, prompt, hasEvent: false };
}
