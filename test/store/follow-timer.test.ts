import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FollowTimer } from "../../src/store/views/follow.ts";

beforeEach(() => {
	vi.useFakeTimers();
});
afterEach(() => {
	vi.useRealTimers();
});

/** Appends every 100 ms for a while. Returns the times of the starts, in milliseconds. */
function startsWhileAppending(timer: FollowTimer, milliseconds: number): number[] {
	const began = performance.now();
	const starts: number[] = [];
	for (let at = 0; at < milliseconds; at += 100) {
		timer.onAppend(() => starts.push(performance.now() - began));
		vi.advanceTimersByTime(100);
	}
	vi.advanceTimersByTime(10_000);
	return starts;
}

test("the views follow when no append came for a while", () => {
	expect(startsWhileAppending(new FollowTimer(), 1_000)).toEqual([1_150]);
});

test("the views follow at the latest five seconds after an append", () => {
	expect(startsWhileAppending(new FollowTimer(), 6_000)).toEqual([4_950, 6_150]);
});

test("the views follow soon for ten seconds after a read", () => {
	const timer = new FollowTimer();
	timer.onRead();
	expect(startsWhileAppending(timer, 300)).toEqual([50, 150, 250]);
	expect(startsWhileAppending(timer, 300)).toEqual([450]);
});

test("nothing starts after a stop", () => {
	const timer = new FollowTimer();
	const start = vi.fn();
	timer.onAppend(start);
	timer.stop();
	vi.advanceTimersByTime(10_000);
	expect(start).not.toHaveBeenCalled();
});
