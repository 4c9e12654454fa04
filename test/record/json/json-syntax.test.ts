import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { locateJsonError } from "../../../src/record/json/json-syntax.ts";

/** Malformed texts, each with the offset and the reason that Python 3.13.0 reports. */
const rows = z
	.array(z.tuple([z.string(), z.number(), z.string()]))
	.parse(JSON.parse(readFileSync(new URL("../../fixtures/json-syntax.json", import.meta.url), "utf8")));

function parses(text: string): boolean {
	try {
		JSON.parse(text);
		return true;
	} catch {
		return false;
	}
}

describe("locateJsonError", () => {
	test.each(rows)("reports for %j the offset and reason that Python does", (text, offset, reason) => {
		expect(locateJsonError(text)).toEqual({ offset, reason });
	});

	test.each([
		["NaN", 0],
		["Infinity", 0],
		["[-Infinity]", 1],
		['{"😀": NaN}', 6],
	])("refuses %j, which Python accepts", (text, offset) => {
		expect(locateJsonError(text)).toEqual({ offset, reason: "Expecting value" });
	});

	test("scans text of any nesting depth", () => {
		const depth = 100_000;
		expect(locateJsonError("[".repeat(depth))).toEqual({ offset: depth, reason: "Expecting value" });
		expect(locateJsonError(`${'{"a":'.repeat(depth)}1${"}".repeat(depth)}}`)).toEqual({
			offset: 6 * depth + 1,
			reason: "Extra data",
		});
	});

	test("scans long strings, numbers and white space without exhausting the stack", () => {
		const length = 4_000_000;
		expect(locateJsonError(`"${"\\n".repeat(length)}`)).toEqual({
			offset: 0,
			reason: "Unterminated string starting at",
		});
		expect(locateJsonError(`${"1".repeat(length)}x`)).toEqual({ offset: length, reason: "Extra data" });
		expect(locateJsonError(" ".repeat(length))).toEqual({ offset: length, reason: "Expecting value" });
	});

	test("finds an error exactly in the texts that JSON.parse refuses", () => {
		const piece = fc.constantFrom(...'{}[]",:\\ \n\u0001u01e+-.tx😀', "true", "null", '"a"', '{"a":', "[1,", "\\u00e9");
		const broken = fc.tuple(fc.json(), fc.nat(), fc.nat(3), piece).map(([json, at, cut, put]) => {
			const index = at % (json.length + 1);
			return json.slice(0, index) + put + json.slice(index + cut);
		});
		fc.assert(
			fc.property(
				fc.oneof(
					broken,
					fc.array(piece).map((pieces) => pieces.join("")),
				),
				(text) => {
					if (parses(text)) {
						expect(() => locateJsonError(text)).toThrow(new TypeError("The text is well-formed JSON"));
					} else {
						const { offset } = locateJsonError(text);
						expect(offset).toBeGreaterThanOrEqual(0);
						expect(offset).toBeLessThanOrEqual([...text].length);
					}
				},
			),
			{ numRuns: 2000 },
		);
	});
});
