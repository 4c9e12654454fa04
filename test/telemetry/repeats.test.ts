import fc from "fast-check";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Occurrence, Repeats, type Sum } from "../../src/telemetry/repeats.ts";

type Event = "refusals" | "failures";

const WINDOW = 10_000;
const START = new Date("2026-11-22T00:00:00Z");

let sums: Sum<Event>[] = [];

beforeEach(() => {
	vi.useFakeTimers({ now: START });
	sums = [];
});
afterEach(() => {
	vi.useRealTimers();
});

const repeatsOf = (maxCauses?: number) =>
	new Repeats<Event>((sum) => sums.push(sum), { window: WINDOW, ...(maxCauses !== undefined && { maxCauses }) });

/** Returns an occurrence of a refusal at an operation, by default always of the same kind. */
function refusal(operation: string, more: Partial<Occurrence<Event>> = {}): Occurrence<Event> {
	return { sum: "refusals", cause: { operation, kind: "k" }, group: { kind: "k" }, ...more };
}

test("the first occurrence of a cause is reported, the others are summed up at the end of the window", () => {
	const repeats = repeatsOf();
	expect([1, 2, 3].map(() => repeats.isFirst(refusal("a")))).toEqual([true, false, false]);
	expect(repeats.isFirst(refusal("b"))).toBe(true);
	expect(repeats.isFirst(refusal("a", { sum: "failures" }))).toBe(true);
	vi.advanceTimersByTime(WINDOW - 1);
	expect(sums).toEqual([]);
	vi.advanceTimersByTime(1);
	const cause = { operation: "a", kind: "k" };
	expect(sums).toEqual([{ event: "refusals", cause, count: 2, since: START, counts: {}, samples: {} }]);
});

test("a cause has one sum a window while it continues, and a first occurrence after a window without it", () => {
	const repeats = repeatsOf();
	repeats.isFirst(refusal("a"));
	for (let second = 0; second < 35; second++) {
		repeats.isFirst(refusal("a"));
		vi.advanceTimersByTime(1_000);
	}
	expect(sums.map(({ count, since }) => [count, since.getTime() - START.getTime()])).toEqual([
		[10, 0],
		[10, 10_000],
		[10, 20_000],
	]);
	vi.advanceTimersByTime(2 * WINDOW);
	expect(sums.map(({ count }) => count)).toEqual([10, 10, 10, 5]);
	expect(vi.getTimerCount()).toBe(0);
	expect(repeats.isFirst(refusal("a"))).toBe(true);
});

test("a sum adds up counts and keeps the first different samples; other broken rules are another cause", () => {
	const repeats = repeatsOf();
	const broken = (counts: Record<string, number>, ...ids: string[]) => refusal("a", { counts, samples: { ids } });
	expect(repeats.isFirst(broken({ missing: 1 }, "0"))).toBe(true);
	for (let id = 1; id < 30; id++) expect(repeats.isFirst(broken({ missing: 2 }, "1", `${id}`))).toBe(false);
	expect(repeats.isFirst(broken({ missing: 1, extra: 1 }))).toBe(true);
	expect(repeats.isFirst(broken({ extra: 4, missing: 3 }))).toBe(false);
	repeats.sumUp();
	const ids = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
	expect(sums).toMatchObject([
		{ count: 29, counts: { missing: 58 }, samples: { ids } },
		{ count: 1, counts: { missing: 3, extra: 4 }, samples: {} },
	]);
	repeats.sumUp();
	expect(sums).toHaveLength(2);
});

test("occurrences of causes beyond the maximum number are summed up by their group", () => {
	const repeats = repeatsOf(3);
	const areFirst = Array.from({ length: 1_000 }, (_, index) => repeats.isFirst(refusal(`/${index}`)));
	expect(areFirst.filter(Boolean)).toHaveLength(3);
	expect(repeats.isFirst(refusal("/0"))).toBe(false);
	repeats.sumUp();
	expect(sums.map(({ cause, count }) => [cause, count])).toEqual([
		[{ operation: "/0", kind: "k" }, 1],
		[{ kind: "k" }, 997],
	]);
});

test("with a window of 0 every occurrence is a first one", () => {
	const repeats = new Repeats<Event>((sum) => sums.push(sum), { window: 0 });
	expect([1, 2].map(() => repeats.isFirst(refusal("a")))).toEqual([true, true]);
	expect(vi.getTimerCount()).toBe(0);
});

test("in any order, each occurrence is reported or counted exactly once, in a limited number of lines", () => {
	const step = fc.record({
		operation: fc.integer({ min: 0, max: 9 }),
		wait: fc.constantFrom(0, 0, 0, 1, 4_000, 25_000),
	});
	fc.assert(
		fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
			sums = [];
			const repeats = repeatsOf(4);
			let reported = 0;
			let waited = 0;
			for (const { operation, wait } of steps) {
				if (repeats.isFirst(refusal(`/${operation}`))) reported += 1;
				vi.advanceTimersByTime(wait);
				waited += wait;
			}
			repeats.sumUp();
			const counted = sums.reduce((total, { count }) => total + count, 0);
			expect(reported + counted).toBe(steps.length);
			const windows = Math.floor(waited / WINDOW) + 1;
			// A window has at most 4 first lines and 5 sums, of 4 causes and a group; the end has 5 more sums.
			expect(reported + sums.length).toBeLessThanOrEqual(windows * 9 + 5);
			vi.runAllTimers();
		}),
	);
});
