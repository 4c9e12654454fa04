import { expect, test } from "vitest";
import { FollowedAhead } from "../../src/store/views/follow.ts";

test("what a step followed ahead of the view's position is known until the position passes it, or another process moves it", () => {
	const ahead = new FollowedAhead();
	const at = (updates: bigint, events: bigint) => ({ updates, events });
	const step = (before: bigint, after: bigint, through: bigint, ...ids: string[]) =>
		ahead.add("usage", {
			conversations: new Set(ids),
			before: at(before, 0n),
			after: at(after, 0n),
			through: at(through, 7n),
			hasMore: true,
		});
	step(0n, 10n, 50n, "a", "b");
	expect([...ahead.of("usage", at(10n, 0n))]).toEqual([
		["a", at(50n, 7n)],
		["b", at(50n, 7n)],
	]);
	expect(ahead.of("conversations", at(10n, 0n)).size).toBe(0);
	step(10n, 40n, 60n, "c", "a");
	expect([...ahead.of("usage", at(40n, 0n))]).toEqual([
		["a", at(60n, 7n)],
		["b", at(50n, 7n)],
		["c", at(60n, 7n)],
	]);
	// The events of `b` are not passed yet.
	step(40n, 55n, 55n);
	expect([...ahead.of("usage", at(55n, 0n)).keys()]).toEqual(["a", "b", "c"]);
	expect(ahead.of("usage", at(56n, 0n)).size).toBe(0);
	step(0n, 56n, 56n, "d");
	expect([...ahead.of("usage", at(56n, 0n)).keys()]).toEqual(["d"]);
});
