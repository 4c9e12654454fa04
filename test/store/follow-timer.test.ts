import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FollowTimer } from "../../src/store/views/follow.ts";

beforeEach(() => {
	vi.useFakeTimers();
});
afterEach(() => {
	vi.useRealTimers();
});

/** Appends every 100 ms for a while. Returns the times of the starts, in milliseconds. */
function startsWhileAppending(timer: FollowTimer, milliseconds: number, waiting?: number): number[] {
	const began = performance.now();
	const starts: number[] = [];
	for (let at = 0; at < milliseconds; at += 100) {
		timer.onAppend(() => starts.push(performance.now() - began), waiting);
		vi.advanceTimersByTime(100);
	}
	vi.advanceTimersByTime(10_000);
	return starts;
}

test("the views follow when no append came for a while", () => {
	expect(startsWhileAppending(new FollowTimer(), 1_000)).toEqual([1_150]);
});

test("the views follow at the latest eight seconds after an append", () => {
	expect(startsWhileAppending(new FollowTimer(), 9_000)).toEqual([7_950, 9_150]);
});

test("the views follow soon when many conversations wait", () => {
	expect(startsWhileAppending(new FollowTimer(), 300, 1_999)).toEqual([450]);
	expect(startsWhileAppending(new FollowTimer(), 300, 2_000)).toEqual([50, 150, 250]);
});

test("the views follow soon for ten seconds after a read", () => {
	const timer = new FollowTimer();
	timer.onRead();
	expect(startsWhileAppending(timer, 300)).toEqual([50, 150, 250]);
	expect(startsWhileAppending(timer, 300)).toEqual([450]);
});

test("appends come between two steps, unless the views are read or many conversations wait", () => {
	const timer = new FollowTimer();
	expect([timer.pause(0), timer.pause(1_999), timer.pause(2_000)]).toEqual([4, 4, 0]);
	timer.onRead();
	expect(timer.pause(0)).toBe(0);
	vi.advanceTimersByTime(10_000);
	expect(timer.pause(0)).toBe(4);
});

test("nothing starts after a stop", () => {
	const timer = new FollowTimer();
	const start = vi.fn();
	timer.onAppend(start);
	timer.stop();
	vi.advanceTimersByTime(10_000);
	expect(start).not.toHaveBeenCalled();
});
