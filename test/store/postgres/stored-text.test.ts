import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeText, encodeText } from "../../../src/store/postgres/session.ts";
import { keyOf } from "../../../src/store/values.ts";

/** Short texts, including the characters that are escaped. */
const text = fc.string({
	unit: fc.constantFrom("\0", "\u0001", "\u0002", "\u0003", "\u0004", "a", "é", "\u{1f600}"),
	maxLength: 6,
});

test("a text is restored from its stored form, which contains no U+0000", () => {
	fc.assert(
		fc.property(fc.oneof(text, fc.string({ unit: "binary" })), (one) => {
			const stored = encodeText(one);
			expect(stored).not.toContain("\0");
			expect(decodeText(stored)).toBe(one);
		}),
	);
});

test("a text contains another one exactly if its stored form contains that of the other", () => {
	fc.assert(
		fc.property(text, text, (one, other) => {
			expect(encodeText(one).includes(encodeText(other))).toBe(one.includes(other));
		}),
		{ numRuns: 2_000 },
	);
});

test.each([
	["a \0 nul", "a \u0001\u0002\u0002 nul"],
	["\u0003", "\u0001\u0003\u0003"],
	["half a pair \ud83d", "half a pair \ufffd"],
])("%j has the expected stored form", (one, stored) => {
	expect(encodeText(one)).toBe(stored);
});

test("stored forms of different keys are different and short, however long the keys are", () => {
	const keys = [
		"x".repeat(256),
		"x".repeat(257),
		`${"x".repeat(256)}y`,
		`${"x".repeat(5_000)}y`,
		`${"x".repeat(5_000)}z`,
		"\0".repeat(257),
		"\u{1f600}".repeat(200),
	];
	const stored = keys.map((key) => encodeText(keyOf(key)));
	expect(new Set(stored).size).toBe(keys.length);
	expect(Math.max(...stored.map((key) => Buffer.byteLength(key)))).toBeLessThan(1_350);
});
