import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ClockSkews, clockSkew, MIN_BATCHES } from "../../../src/conversations/senders.ts";

const SECOND = 1_000_000n;
const MINUTE = 60n * SECOND;
const QUARTER = 15n * MINUTE;

/** Delays of batches that were sent at once, without a skew. */
const prompt = fc.bigInt({ min: -20n * SECOND, max: 100n * SECOND });
/** Delays of batches that waited, or were sent again. */
const late = fc.bigInt({ min: 0n, max: 3n * 86_400n * SECOND });
const skews = fc.integer({ min: -14 * 4, max: 12 * 4 }).map((steps) => BigInt(steps) * QUARTER);

describe("the skew of a clock", () => {
	test("is found among batches that waited or were sent again", () => {
		const places = fc.infiniteStream(fc.nat());
		const sentAtOnce = fc.array(prompt, { minLength: 1, maxLength: 20 });
		const waiting = fc.array(late, { minLength: MIN_BATCHES, maxLength: 60 });
		fc.assert(
			fc.property(skews, sentAtOnce, waiting, places, (skew, atOnce, waited, place) => {
				const delays = [...waited];
				for (const delay of atOnce) delays.splice((place.next().value ?? 0) % (delays.length + 1), 0, delay);
				expect(clockSkew(delays.map((delay) => Number(skew + delay)))).toBe(skew);
			}),
		);
	});

	test("is zero when the least delay is beside no multiple of 15 minutes", () => {
		const between = fc.bigInt({ min: 2n * MINUTE + 1n, max: 13n * MINUTE - 1n });
		fc.assert(
			fc.property(skews, between, (skew, delay) => {
				expect(clockSkew(Array.from({ length: MIN_BATCHES }, () => Number(skew + delay)))).toBe(0n);
			}),
		);
	});

	test("is unknown before 20 batches, judged by the last 100, and reported when it changes", () => {
		const reported: unknown[] = [];
		const found = new ClockSkews((sender, skew) => reported.push([sender, skew]));
		for (let batch = 1; batch < MIN_BATCHES; batch++) found.add("agent", 300n * MINUTE);
		expect([found.of("agent"), found.of("other")]).toEqual([undefined, undefined]);
		found.add("agent", 300n * MINUTE);
		expect(found.of("agent")).toBe(300n * MINUTE);
		found.add("agent", 240n * MINUTE);
		for (let batch = 0; batch < 99; batch++) found.add("agent", 300n * MINUTE);
		expect(found.of("agent")).toBe(240n * MINUTE);
		found.add("agent", 300n * MINUTE);
		expect(found.of("agent")).toBe(300n * MINUTE);
		for (let batch = 0; batch < 100; batch++) found.add("agent", 0n);
		expect(found.of("agent")).toBe(0n);
		expect(reported).toEqual([
			["agent", 300n * MINUTE],
			["agent", 240n * MINUTE],
			["agent", 300n * MINUTE],
		]);
	});
});
