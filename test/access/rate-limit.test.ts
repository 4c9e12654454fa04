import { expect, test } from "vitest";
import { RateLimit } from "../../src/access/gate.ts";

const REFUSED = expect.objectContaining({
	kind: "rate_limited",
	message: "The access key or client certificate exceeds its limit of 3 requests per second",
	caller: expect.stringMatching(/^(?:first|second)$/),
});

test("each holder may use the whole limit at once, and then as much as the elapsed time refills", () => {
	const limit = new RateLimit(3);
	const [first, second] = [
		{ name: "first", scopes: new Set<never>(), owner: undefined },
		{ name: "second", scopes: new Set<never>(), owner: undefined },
	];
	/** Returns how many of 10 requests are accepted at a time in milliseconds. */
	const accepted = (holder: typeof first, now: number): number => {
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
	expect(accepted(first, 1_000)).toBe(3);
	expect(accepted(second, 1_000)).toBe(3);
	expect(accepted(first, 1_300)).toBe(0);
	// Refused requests use up nothing: the time from 1,000 to 1,300 still counts.
	expect(accepted(first, 1_400)).toBe(1);
	expect(accepted(first, 60_000)).toBe(3);
});
