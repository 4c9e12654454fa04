import { expect, test } from "vitest";
import { RateLimit } from "../../src/access/rate-limit.ts";

const REFUSED = expect.objectContaining({
	kind: "rate_limited",
	message: "More than 3 requests a second came with this key",
	caller: expect.stringMatching(/^(?:first|second)$/),
});

test("a holder may make the number at once, and then as many as time gives back", () => {
	const limit = new RateLimit(3);
	const [first, second] = [
		{ name: "first", scopes: new Set<never>() },
		{ name: "second", scopes: new Set<never>() },
	];
	/** How many of 10 requests are taken at a time. */
	const taken = (holder: typeof first, now: number): number => {
		let count = 0;
		for (let index = 0; index < 10; index++)
			try {
				limit.take(holder, now);
				count++;
			} catch (error) {
				expect(error).toEqual(REFUSED);
			}
		return count;
	};
	expect(taken(first, 1_000)).toBe(3);
	expect(taken(second, 1_000)).toBe(3);
	expect(taken(first, 1_300)).toBe(0);
	// Refusals cost nothing: what the time before gave is still there.
	expect(taken(first, 1_400)).toBe(1);
	expect(taken(first, 60_000)).toBe(3);
});
