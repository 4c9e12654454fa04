import { afterEach, expect, test, vi } from "vitest";
import { FollowPace } from "../../src/store/views/follow.ts";

afterEach(() => {
	vi.useRealTimers();
});

test("the views follow sooner for ten seconds after a read", () => {
	vi.useFakeTimers({ toFake: ["performance"] });
	const pace = new FollowPace();
	const delays = [pace.delay];
	pace.onRead();
	for (const milliseconds of [0, 9_999, 1]) {
		vi.advanceTimersByTime(milliseconds);
		delays.push(pace.delay);
	}
	expect(delays).toEqual([2_000, 50, 50, 2_000]);
});
