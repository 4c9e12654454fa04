import type { JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { isJsonObject } from "../../src/record/json/json-value.ts";
import { freeForm } from "../support/arbitrary.ts";

/** Bytes that break careless parsers of JSON, UTF-8, protobuf, HTTP and HPACK. */
const NASTY = [
	...["", "\u0000", '"', "\\", "\\u", "\\ud800", "{", "[[[[[[[[", "]", "}", ",", ":", "null", "NaN", "1e999", "-0"],
	...["123456789012345678901234567890", "0.1e-400", "//", "/*", '"__proto__":', "\r\n", "\r\n\r\n", ": ", "%00", "\t"],
	...["\ufeff", "\u2028", "😀"],
]
	.map((text) => Buffer.from(text))
	.concat(
		["ff", "c0af", "eda080", "f4908080", "80", "ffffffffffffffffff01", "ffffffffffffffffffff", "0b", "0c", "07"].map(
			(hex) => Buffer.from(hex, "hex"),
		),
	);

/** Changes bytes. The position is a fraction of their length. */
type Edit = (bytes: Buffer) => Buffer;

// fc.double and biased integers are close to zero most of the time.
const place = fc.noBias(fc.nat({ max: 2 ** 31 - 1 })).map((number) => number / 2 ** 31);
// The longest reach the end.
const length = fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 2_000 }), fc.constant(2 ** 30));

const edit: fc.Arbitrary<Edit> = fc.oneof(
	{
		weight: 4,
		arbitrary: fc.tuple(place, fc.integer({ min: 1, max: 255 })).map(([at, bits]): Edit => {
			return (bytes) => {
				const changed = Buffer.from(bytes);
				const index = Math.floor(at * bytes.length);
				changed[index] = (changed[index] ?? 0) ^ bits;
				return changed;
			};
		}),
	},
	{
		weight: 2,
		arbitrary: fc.tuple(place, length).map(
			([at, count]): Edit =>
				(bytes) =>
					spliced(bytes, at, count, Buffer.alloc(0)),
		),
	},
	{
		weight: 3,
		arbitrary: fc.tuple(place, fc.oneof(fc.constantFrom(...NASTY), fc.uint8Array({ minLength: 1, maxLength: 40 }))).map(
			([at, added]): Edit =>
				(bytes) =>
					spliced(bytes, at, 0, added),
		),
	},
);

function spliced(bytes: Buffer, at: number, removed: number, added: Uint8Array): Buffer {
	const index = Math.floor(at * bytes.length);
	return Buffer.concat([bytes.subarray(0, index), added, bytes.subarray(index + removed)]);
}

/** Applies up to four changes at random positions: flipped bits, and removed or added parts. */
export function mutated(source: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Buffer> {
	return fc
		.tuple(source, fc.oneof({ weight: 2, arbitrary: edit.map((only) => [only]) }, fc.array(edit, { maxLength: 4 })))
		.map(([bytes, edits]) => edits.reduce((changed: Buffer, change) => change(changed), Buffer.from(bytes)));
}

/** Replaces or removes one to three values at random positions. */
export function spoiled(source: fc.Arbitrary<JsonValue>): fc.Arbitrary<JsonValue> {
	const change = fc.tuple(
		place,
		fc.oneof(fc.constant(undefined), freeForm, fc.constantFrom<JsonValue>(1e300, -1, "", [], {})),
	);
	return fc
		.tuple(source, fc.array(change, { minLength: 1, maxLength: 3 }))
		.map(([json, changes]) => changes.reduce((changed, [at, value]) => replaced(changed, at, value), json));
}

/** Replaces one value, or removes it if `value` is undefined. */
function replaced(json: JsonValue, at: number, value: JsonValue | undefined): JsonValue {
	const target = Math.floor(at * countValues(json));
	let index = 0;
	const visit = (present: JsonValue): JsonValue | undefined => {
		const own = index;
		index += 1;
		if (own === target) {
			index += countValues(present) - 1;
			return value;
		}
		if (Array.isArray(present)) return present.map(visit).filter((item) => item !== undefined);
		if (!isJsonObject(present)) return present;
		const members = Object.entries(present).map(([name, member]): [string, JsonValue | undefined] => [
			name,
			visit(member),
		]);
		return Object.fromEntries(members.flatMap(([name, member]) => (member === undefined ? [] : [[name, member]])));
	};
	return visit(json) ?? null;
}

function countValues(json: JsonValue): number {
	const items = Array.isArray(json) ? json : isJsonObject(json) ? Object.values(json) : [];
	return items.reduce((sum: number, item) => sum + countValues(item), 1);
}
