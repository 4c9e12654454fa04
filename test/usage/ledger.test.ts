import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ConversationStats, ConversationStatsSchema } from "../../gen/conversations/v1/stats_pb.js";
import {
	AMOUNTS,
	type Amounts,
	costUnits,
	countStats,
	formatLedger,
	type Ledger,
	NO_LEDGER,
	parseLedger,
	type ReportedStats,
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

const HOUR = 3600;
const CREATED = 1_800_000_000;
const call: fc.Arbitrary<Omit<Call, "at">> = fc.record({
	usageId: fc.constantFrom("agent", "condenser"),
	model: fc.constantFrom("a", "b"),
	cost: fc.constantFrom(0, 0.003075, 1e-9, 0.1, 12.5),
	prompt: fc.nat(5000),
	hasEvent: fc.boolean(),
});

/** Returns the stats after calls, as the agent server makes them: costs and tokens of zero are not listed. */
function statsAfter(calls: readonly Call[], withLists = true): ConversationStats {
	const stats = create(ConversationStatsSchema);
	for (const usageId of new Set(calls.map((one) => one.usageId))) {
		const own = calls.filter((one) => one.usageId === usageId);
		const metrics = create(ConversationStatsSchema, {
			usageToMetrics: {
				[usageId]: {
					modelName: own.at(-1)?.model ?? "",
					accumulatedCost: own.reduce((sum, { cost }) => sum + cost, 0),
					accumulatedTokenUsage: { promptTokens: BigInt(own.reduce((sum, { prompt }) => sum + prompt, 0)) },
					...(withLists
						? {
								costs: own
									.filter(({ cost }) => cost > 0)
									.map(({ model, cost, at }) => ({ model, cost, timestamp: at })),
								tokenUsages: own
									.filter(({ prompt }) => prompt > 0)
									.map(({ model, prompt, at }) => ({ model, promptTokens: BigInt(prompt), responseId: String(at) })),
								responseLatencies: own.map(({ model, at }) => ({ model, latency: 1, responseId: String(at) })),
							}
						: {}),
				},
			},
		}).usageToMetrics[usageId];
		if (metrics !== undefined) stats.usageToMetrics[usageId] = metrics;
	}
	return stats;
}

function at(calls: readonly Omit<Call, "at">[], start: number): Call[] {
	return calls.map((one, index) => ({ ...one, at: start + index * 600 }));
}

function report(stats: ConversationStats, of: Partial<ReportedStats> = {}): ReportedStats {
	return {
		stats,
		createdAt: BigInt(CREATED) * 1_000_000n,
		isFork: false,
		agentKind: "Agent",
		time: BigInt(CREATED + 100 * HOUR) * 1_000_000n,
		timeOf: () => undefined,
		...of,
	};
}

/** Counts reports one after the other, with the ledger stored and read again between them. */
function countAll(reports: readonly ReportedStats[]): { ledger: Ledger; rows: UsageRow[] } {
	let ledger = NO_LEDGER;
	const rows: UsageRow[] = [];
	for (const reported of reports) {
		const counted = countStats(parseLedger(formatLedger(ledger)), reported);
		ledger = counted.ledger;
		rows.push(...counted.rows);
	}
	return { ledger, rows };
}

function tokensOf({ usageToMetrics }: ConversationStats): bigint {
	return Object.values(usageToMetrics).reduce((sum, m) => sum + (m.accumulatedTokenUsage?.promptTokens ?? 0n), 0n);
}

function costOf({ usageToMetrics }: ConversationStats): bigint {
	return Object.values(usageToMetrics).reduce((sum, m) => sum + costUnits(m.accumulatedCost ?? 0), 0n);
}

function expectLaw(rows: readonly UsageRow[], stats: ConversationStats, calls: number): void {
	const sum = sumOf(rows);
	expect(sum.promptTokens).toBe(tokensOf(stats));
	const difference = sum.cost - costOf(stats);
	expect(difference >= -BigInt(calls + 4) && difference <= BigInt(calls + 4)).toBe(true);
}

const step = fc.record({ upTo: fc.nat(12), withLists: fc.boolean(), knowsCreation: fc.boolean() });

describe("the rows of a life add up to the stats of the current record", () => {
	test("whatever is reported in whatever order, with or without lists, also when totals fall", () => {
		fc.assert(
			fc.property(fc.array(call, { maxLength: 12 }), fc.array(step, { minLength: 1, maxLength: 8 }), (some, steps) => {
				const calls = at(some, CREATED);
				const reports = steps.map(({ upTo, withLists, knowsCreation }, index) =>
					report(statsAfter(calls.slice(0, upTo), withLists), {
						time: BigInt(CREATED + (index + 1) * HOUR) * 1_000_000n,
						createdAt: knowsCreation ? BigInt(CREATED) * 1_000_000n : undefined,
						timeOf: (id) =>
							calls.some((one) => one.hasEvent && String(one.at) === id) ? BigInt(id) * 1_000_000n : undefined,
					}),
				);
				const { rows } = countAll(reports);
				const last = reports.at(-1)?.stats;
				if (last === undefined) throw new Error("there is a report");
				expectLaw(rows, last, calls.length * steps.length);
			}),
		);
	});

	test("a repeated report adds no row", () => {
		fc.assert(
			fc.property(fc.array(call, { maxLength: 12 }), fc.boolean(), (some, withLists) => {
				const reported = report(statsAfter(at(some, CREATED), withLists));
				const { ledger } = countAll([reported]);
				expect(countStats(ledger, reported).rows).toEqual([]);
			}),
		);
	});

	test("calls count at their own times and models, however they were reported first", () => {
		fc.assert(
			fc.property(fc.array(call, { maxLength: 12 }), fc.array(fc.boolean(), { maxLength: 4 }), (some, early) => {
				const calls = at(
					some.map((one) => ({ ...one, hasEvent: true })),
					CREATED,
				);
				const timeOf = (id: string) => BigInt(id) * 1_000_000n;
				const whole = report(statsAfter(calls), { timeOf });
				const parts = early.map((withLists, index) =>
					report(statsAfter(calls.slice(0, 3 * (index + 1)), withLists), { timeOf }),
				);
				const byKey = (rows: readonly UsageRow[]) => {
					const sums = new Map<string, Amounts>();
					for (const row of rows) {
						const key = `${row.usageId} ${row.model} ${row.quarter}`;
						sums.set(key, sumOf([sums.get(key) ?? sumOf([]), row]));
					}
					return new Map([...sums].filter(([, sum]) => AMOUNTS.some((name) => sum[name] !== 0n)).sort());
				};
				expect(byKey(countAll([...parts, whole]).rows)).toEqual(byKey(countAll([whole]).rows));
			}),
		);
	});
});

describe("a fork", () => {
	const source = at([call0(0.5, 100), call0(0.25, 200)], CREATED - HOUR);
	const own = at([call0(1, 1000)], CREATED + HOUR);

	test("is not charged for what it took over, and is for its own calls", () => {
		const first = report(statsAfter(source), { isFork: true });
		const second = report(statsAfter([...source, ...own]), { isFork: true });
		expect(countAll([first]).rows).toEqual([]);
		const { rows } = countAll([first, second]);
		expect(sumOf(rows)).toEqual({ ...sumOf([]), cost: 1_000_000_000n, promptTokens: 1000n, calls: 1n });
	});

	test("is charged for its own calls alone if the first report already has both", () => {
		const { rows } = countAll([report(statsAfter([...source, ...own]), { isFork: true })]);
		expect(sumOf(rows)).toEqual({ ...sumOf([]), cost: 1_000_000_000n, promptTokens: 1000n, calls: 1n });
	});

	test("gives back what it was charged for while its time of creation was not known", () => {
		const early = report(statsAfter(source), { createdAt: undefined });
		const later = report(statsAfter([...source, ...own]), { isFork: true });
		const { rows } = countAll([early, later]);
		expect(sumOf(rows)).toEqual({ ...sumOf([]), cost: 1_000_000_000n, promptTokens: 1000n, calls: 1n });
	});

	const ownUsage = { ...sumOf([]), cost: 1_000_000_000n, promptTokens: 1000n, calls: 1n };

	test("is not charged for calls of its source whose events were copied and fetched", () => {
		const timeOf = (responseId: string) => BigInt(responseId) * 1_000_000n;
		expect(sumOf(countAll([report(statsAfter([...source, ...own]), { isFork: true, timeOf })]).rows)).toEqual(ownUsage);
	});

	test("is charged for an own call before the first one that has an event", () => {
		const calls = [...source, ...own, ...at([call0(1, 10)], CREATED + 2 * HOUR)];
		const timeOf = (responseId: string) => (responseId === String(CREATED + 2 * HOUR) ? 1n << 60n : undefined);
		const { rows } = countAll([report(statsAfter(calls), { isFork: true, timeOf })]);
		expect(sumOf(rows)).toEqual({ ...sumOf([]), cost: 2_000_000_000n, promptTokens: 1010n, calls: 2n });
	});

	test("is charged for a call whose cost has no time", () => {
		const stats = statsAfter([...source, ...own]);
		for (const cost of stats.usageToMetrics.agent?.costs.slice(2) ?? []) cost.timestamp = undefined;
		expect(sumOf(countAll([report(stats, { isFork: true })]).rows)).toEqual(ownUsage);
	});

	test("is the only conversation that is not charged for costs before its creation", () => {
		const stats = statsAfter([...source, ...own]);
		const { rows } = countAll([report(stats)]);
		expectLaw(rows, stats, 3);
		expect(sumOf(rows).calls).toBe(3n);
	});

	test("is not charged for a copied total without lists that follows", () => {
		const first = report(statsAfter(source), { isFork: true });
		const event = report(statsAfter(source, false), { isFork: true });
		expect(countAll([first, event]).rows).toEqual([]);
	});
});

test("a sum beyond the range of an integer of 64 bits ends at its limit", () => {
	const stats = create(ConversationStatsSchema, {
		usageToMetrics: { agent: { accumulatedCost: 1e300, accumulatedTokenUsage: { promptTokens: 2n ** 63n - 1n } } },
	});
	expect(sumOf(countAll([report(stats)]).rows)).toEqual({
		...sumOf([]),
		cost: 2n ** 63n - 1n,
		promptTokens: 2n ** 63n - 1n,
	});
});

function call0(cost: number, prompt: number): Omit<Call, "at"> {
	return { usageId: "agent", model: "a", cost, prompt, hasEvent: false };
}
