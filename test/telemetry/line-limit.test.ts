import fc from "fast-check";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LineLimit } from "../../src/telemetry/log.ts";

const WINDOW = 10_000;

let reports: (readonly [string, number])[] = [];

beforeEach(() => {
	vi.useFakeTimers();
	reports = [];
});
afterEach(() => {
	vi.useRealTimers();
});

const limitOf = (lines?: number) =>
	new LineLimit(({ event }, leftOut) => reports.push([String(event), leftOut]), lines);

test("ten lines of each kind are admitted in a window, and the others are reported at its end", () => {
	const limit = limitOf();
	expect(Array.from({ length: 12 }, () => limit.admits({ event: "a" }))).toEqual([
		...Array(10).fill(true),
		false,
		false,
	]);
	expect(limit.admits({ event: "b" })).toBe(true);
	vi.advanceTimersByTime(WINDOW - 1);
	expect(reports).toEqual([]);
	vi.advanceTimersByTime(1);
	expect(reports).toEqual([["a", 2]]);
	expect(vi.getTimerCount()).toBe(0);
	expect(limit.admits({ event: "a" })).toBe(true);
});

test("the end of a window reports what was left out at once, and only once", () => {
	const limit = limitOf(1);
	for (let line = 0; line < 4; line++) limit.admits({ event: "a" });
	limit.endWindow();
	limit.endWindow();
	vi.advanceTimersByTime(WINDOW);
	expect(reports).toEqual([["a", 3]]);
});

test("in any order, each line is admitted or reported exactly once, in a limited number of lines", () => {
	const step = fc.record({
		event: fc.constantFrom("a", "b", "c"),
		wait: fc.constantFrom(0, 0, 0, 1, 4_000, 25_000),
	});
	fc.assert(
		fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
			reports = [];
			const limit = limitOf(3);
			let admitted = 0;
			let waited = 0;
			for (const { event, wait } of steps) {
				if (limit.admits({ event })) admitted += 1;
				vi.advanceTimersByTime(wait);
				waited += wait;
			}
			limit.endWindow();
			expect(admitted + reports.reduce((sum, [, leftOut]) => sum + leftOut, 0)).toBe(steps.length);
			// Of each of the three events, a window has at most three lines and a report.
			expect(admitted + reports.length).toBeLessThanOrEqual((Math.floor(waited / WINDOW) + 1) * 3 * 4);
		}),
	);
});
