import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { locateJsonError } from "../../../src/record/json/exact-json.ts";

function parses(text: string): boolean {
	try {
		JSON.parse(text);
		return true;
	} catch {
		return false;
	}
}

describe("locateJsonError", () => {
	test.each([
		["", 0],
		[" ", 1],
		["{", 1],
		['"a', 0],
		['"a\\', 0],
		['"a\\u12g4"', 0],
		['"\\ud83d\\uzzzz"', 0],
		['"\\\n"', 0],
		['"\u0000"', 0],
		["trueX", 0],
		["01", 1],
		["1.", 0],
		["[1 2]", 3],
		["[1,]", 2],
		["[ 1 , ]", 4],
		["[1}", 2],
		["[[],]]", 3],
		['{"a"', 4],
		['{"a" 1}', 5],
		['{"a":1,}', 6],
		['{"a":1 , }', 7],
		["{a:1}", 1],
		['{"a":[1,2,{"b":null,}]}', 19],
		['["\ud83d\ude00\\q"]', 1],
		['"\ud83d\ude00', 0],
		["[-Infinity]", 1],
		['{"\ud83d\ude00": NaN}', 6],
	])("finds the place in %j where JSON ends", (text, offset) => {
		expect(locateJsonError(text)).toBe(offset);
	});

	test("answers with the end of a text that is nested deeper than the stack", () => {
		const depth = 100_000;
		expect(locateJsonError("[".repeat(depth))).toBe(depth);
		expect(locateJsonError(`${'{"a":'.repeat(depth)}1${"}".repeat(depth)}}`)).toEqual(6 * depth + 2);
	});

	test("scans long strings, numbers and white space without exhausting the stack", () => {
		const length = 4_000_000;
		expect(locateJsonError(`"${"\\n".repeat(length)}`)).toEqual(0);
		expect(locateJsonError(`${"1".repeat(length)}x`)).toEqual(length);
		expect(locateJsonError(" ".repeat(length))).toEqual(length);
	});

	test("finds a place in each text that JSON.parse refuses", () => {
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
					fc.pre(!parses(text));
					const offset = locateJsonError(text);
					expect(offset).toBeGreaterThanOrEqual(0);
					expect(offset).toBeLessThanOrEqual([...text].length);
				},
			),
			{ numRuns: 2000 },
		);
	});
});
