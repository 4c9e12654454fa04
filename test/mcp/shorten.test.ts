import fc from "fast-check";
import { expect, test } from "vitest";
import { bytesOf, cutText, firstRows, type Json, LEAST, plainJson, shorten } from "../../src/mcp/tools.ts";
import { seedProperties } from "../support/random.ts";

seedProperties();

const json: fc.Arbitrary<Json> = fc
	.jsonValue({ maxDepth: 5, stringUnit: "binary" })
	.map((value) => plainJson(JSON.parse(JSON.stringify(value))));
const long: fc.Arbitrary<Json> = fc.array(
	fc.record({ id: fc.uuid(), text: fc.string({ maxLength: 2_000, unit: "binary" }), more: json }),
	{ maxLength: 8 },
);

test("a shortened value fits, and one that fits is the same", () => {
	fc.assert(
		fc.property(fc.oneof(json, long), fc.integer({ min: LEAST, max: 4_000 }), (value, bytes) => {
			const shown = shorten(value, bytes);
			expect(bytesOf(shown)).toBeLessThanOrEqual(Math.max(bytes, 0));
			if (bytesOf(value) <= bytes) expect(shown).toBe(value);
		}),
	);
});

test("small members stay whole beside large ones, and what is left out is counted", () => {
	const value = { id: "a".repeat(40), text: "x".repeat(5_000), list: Array.from({ length: 500 }, (_, n) => n), n: 7 };
	expect(shorten(value, 300)).toEqual({
		id: "a".repeat(40),
		text: expect.stringMatching(/^x+… \[cut: ends at \d+ of 5000 characters\]$/),
		list: expect.arrayContaining([0, 1, expect.stringMatching(/^… \d+ items left out$/)]),
		n: 7,
	});
	const many = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`member${n}`, "y".repeat(30)]));
	const shown = shorten(many, 400);
	expect(shown).toMatchObject({ member0: "y".repeat(30), "…": expect.stringMatching(/^\d+ members left out$/) });
});

test("the parts of a cut text are the text", () => {
	fc.assert(
		fc.property(fc.string({ minLength: 1, maxLength: 3_000, unit: "grapheme" }), (text) => {
			let whole = "";
			for (let from = 0; from < text.length; ) {
				const { shown, end } = cutText(text, 200, from);
				expect(end).toBeGreaterThan(from);
				whole += shown.replace(/… \[cut: ends at \d+ of \d+ characters\]$/, "");
				from = end;
			}
			expect(whole).toBe(text);
		}),
	);
});

test("at least one row is shown", () => {
	expect(firstRows(["a".repeat(50), "b"], 10)).toEqual(["a".repeat(50)]);
	expect(firstRows(["a", "b", "c"], 9)).toEqual(["a", "b"]);
	expect(firstRows([], 9)).toEqual([]);
});

test("integers beyond 2^53 become texts", () => {
	expect(plainJson({ a: [2n ** 60n, 1] })).toEqual({ a: ["1152921504606846976", 1] });
});
