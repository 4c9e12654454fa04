import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ServiceError } from "../../../src/errors.ts";
import { parseExactJson, stringifyExactJson } from "../../../src/record/json/exact-json.ts";
import { MAX_RECORD_DEPTH, MAX_VALUES } from "../../../src/record/json/json-value.ts";

const parse = (text: string) => parseExactJson(Buffer.from(text)).json;

function refusal(text: string): unknown {
	try {
		parse(text);
	} catch (error) {
		if (error instanceof ServiceError) return error.violations;
	}
	throw new Error("the text was accepted");
}

/** Writes a value as JSON, with the characters of randomly chosen strings written as \u escapes. */
function escaped(json: unknown, escapes: Iterator<boolean>): string {
	return JSON.stringify(json).replaceAll(/"(?:[^"\\]|\\.)*"/g, (string) =>
		[...string.slice(1, -1)].some((character) => character === "\\") || escapes.next().value !== true
			? string
			: `"${[...string.slice(1, -1)].map(unicodeEscape).join("")}"`,
	);
}

function unicodeEscape(character: string): string {
	return Array.from({ length: character.length }, (_, index) => {
		return `\\u${character.charCodeAt(index).toString(16).padStart(4, "0")}`;
	}).join("");
}

describe("member names that are written with escapes", () => {
	test("are decoded independently of texts that were parsed before", () => {
		parse('{"a":1,"\\\\":1}');
		expect(parse('{"a":1,"\\"":2}')).toEqual({ a: 1, '"': 2 });
	});

	test("and all other values are parsed to what was written, whichever strings have escapes", () => {
		const name = fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("__proto__", "constructor", "0", "", "é"));
		const { value } = fc.letrec((tie) => ({
			value: fc.oneof(
				{ maxDepth: 4 },
				fc.oneof(
					fc.string({ unit: "binary" }),
					fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e15, max: 1e15 }),
				),
				fc.constantFrom(null, true, false, -0, 0.5),
				fc.array(tie("value")),
				fc.array(fc.tuple(name, tie("value"))).map((members) => Object.fromEntries(members)),
			),
		}));
		fc.assert(
			fc.property(value, fc.infiniteStream(fc.boolean()), (json, escapes) => {
				const text = escaped(json, escapes);
				expect(JSON.stringify(parse(`{"\\u0061":${text}}`))).toBe(JSON.stringify({ a: json }));
				expect(JSON.stringify(parse(text))).toBe(JSON.stringify(json));
			}),
			{ numRuns: 1000 },
		);
	});

	test("may occur twice, and may be __proto__", () => {
		expect(parse('{"\\u0061":1,"b":2,"a":3}')).toEqual({ a: 3, b: 2 });
		const json = parse('{"\\u005f_proto__":{"x":1}}');
		expect(JSON.stringify(json)).toBe('{"__proto__":{"x":1}}');
		expect("x" in Object.prototype).toBe(false);
	});
});

test("a password in the URL that a member is named by is redacted, also if the name is written with an escape", () => {
	const redacted = { outer: [{ "https://**********@host/": 1 }] };
	for (const name of ["https://user:password@host/", "https://user:password\\u0040host/"])
		expect(parse(`{"outer":[{"${name}":1}]}`)).toEqual(redacted);
});

describe("integers beyond 2^53 are read exactly, other numbers as doubles", () => {
	test.each<[string, unknown]>([
		["9007199254740991", 9007199254740991],
		["9007199254740992", 9007199254740992n],
		["9007199254740993", 9007199254740993n],
		["-9223372036854775809", -9223372036854775809n],
		["1e17", 100000000000000000n],
		["1.23456789012345678901e20", 123456789012345678901n],
		["9007199254740993.0", 9007199254740993n],
		["90071992547409930E-1", 9007199254740993n],
		["0.00000000000000000000001e40", 100000000000000000n],
		["1e22", 10000000000000000000000n],
		["9007199254740993.5", 9007199254740994],
		["1e-400", 0],
		["1e400", Infinity],
		["12345678901234567.25", 12345678901234568],
	])("%s", (text, expected) => {
		expect(parse(text)).toBe(expected);
		expect(parse(`[{"a":${text}}]`)).toEqual([{ a: expected }]);
	});

	test("an integer of up to 200 bits is written as it was read", () => {
		fc.assert(
			fc.property(fc.bigInt({ min: -(2n ** 200n), max: 2n ** 200n }), (integer) => {
				const json = parse(`{"a":[${integer}]}`);
				const safe = integer >= -(2n ** 53n) + 1n && integer <= 2n ** 53n - 1n;
				expect(json).toEqual({ a: [safe ? Number(integer) : integer] });
				expect(stringifyExactJson(json)).toBe(`{"a":[${integer}]}`);
			}),
		);
	});
});

describe("a JSON text is refused", () => {
	test.each<[string, string, unknown]>([
		["that is empty", "", { path: [], type: "missing", message: "Field required" }],
		[
			"that is not JSON, without quoting it",
			'{"a": secret}',
			{
				path: [6],
				type: "json_invalid",
				message: "JSON decode error",
				context: { error: "not JSON from this place on" },
			},
		],
		[
			"that nests deeper than a record",
			`${"[".repeat(MAX_RECORD_DEPTH + 1)}${"]".repeat(MAX_RECORD_DEPTH + 1)}`,
			{ path: [], type: "value_error", message: "Value error, nested more than 48 levels deep" },
		],
	])("%s", (_, text, violation) => {
		expect(refusal(text)).toEqual([violation]);
	});

	test("that is not UTF-8", () => {
		expect(() => parseExactJson(Buffer.from([0x22, 0xff, 0x22]))).toThrow(ServiceError);
	});

	test.each<[string, (count: number) => string]>([
		["elements", (count) => `[${"1,".repeat(count - 1)}1]`],
		["elements separated by spaces", (count) => `[ ${"1 , ".repeat(count - 1)}"],[" ]`],
		["empty containers", (count) => `[${"[],".repeat(count - 1)}{}]`],
		["members", (count) => `{${Array.from({ length: count }, (_, index) => `"n${index}":"\\",{"`).join(",")}}`],
	])("that has more %s than a record may have", (_, text) => {
		expect(Object.keys(Object(parse(text(MAX_VALUES))))).toHaveLength(MAX_VALUES);
		expect(refusal(text(MAX_VALUES + 1))).toEqual([
			{ path: [], type: "value_error", message: "Value error, more than 200000 elements and members" },
		]);
	});
});

test("a byte-order mark is ignored, and escaped surrogates are reported", () => {
	expect(parseExactJson(Buffer.from('\ufeff{"a":1}'))).toMatchObject({ json: { a: 1 }, mayHaveSurrogates: false });
	for (const text of ['"\\ud83d"', '"\\uD83D\\uDE00"'])
		expect(parseExactJson(Buffer.from(text)).mayHaveSurrogates).toBe(true);
});
