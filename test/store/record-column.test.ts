import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import type { NewEvents } from "../../src/store/entries.ts";
import {
	columnOfEvent,
	packEvents,
	packRecord,
	packSecrets,
	packTextAsync,
	unpackerOf,
	unpackRecord,
	unpackSecrets,
} from "../../src/store/record-column.ts";
import type { RecordColumn } from "../../src/store/values.ts";
import { batchTexts, eventsIn } from "../support/event-batches.ts";
import { event as sampleEvent } from "./event-samples.ts";

const repetitive = Buffer.from("Always use tabs. ".repeat(5_000));

test.each([
	["a short record", Buffer.from("x".repeat(1_000)), null],
	["a long random record", randomBytes(100_000), null],
	["a long repetitive record", repetitive, repetitive.length],
])("%s is unchanged after packing and unpacking", (_, record, unpackedSize) => {
	const packed = packRecord(record);
	expect(packed.unpackedSize).toBe(unpackedSize);
	expect(Buffer.compare(unpackRecord(packed), record)).toBe(0);
});

test("a repetitive record is compressed to less than 2 % of its size", () => {
	expect(packRecord(repetitive).record.length).toBeLessThan(repetitive.length / 50);
});

test.each([
	["short", Buffer.from("x".repeat(1_000))],
	["compressed", repetitive],
])("unpacking a damaged record throws: %s", (_, record) => {
	const packed = packRecord(record);
	const changed = Buffer.from(packed.record);
	changed.writeUInt8(changed.readUInt8(7) ^ 1, 7);
	expect(() => unpackRecord({ ...packed, record: changed })).toThrow("the checksum of the record is wrong");
	expect(() => unpackRecord({ ...packed, record: packed.record.subarray(0, 9) })).toThrow("checksum");
});

test.each([[], ["/value/a~1b", ""]])("pointers of secrets are unchanged by packing: %j", (...pointers: string[]) => {
	expect(unpackSecrets(packSecrets(pointers) ?? undefined)).toEqual(pointers);
});

test.each(["{}", "null", '"/a"', "[1]", '["/a", null]'])("unpacking other JSON as secrets throws: %s", (column) => {
	expect(() => unpackSecrets(column)).toThrow(TypeError);
});

/** Texts of random members, and of captured events with random changes. */
const texts = fc.array(
	fc.oneof(
		fc.json().map((json) => Buffer.from(json)),
		fc.uint8Array({ maxLength: 2_000 }).map((bytes) => Buffer.from(bytes)),
		fc
			.record({ event: fc.constantFrom(...capturedTexts()), note: fc.string({ maxLength: 1_000 }) })
			.map(({ event, note }) => Buffer.from(`${event.slice(0, -1)},"note":${JSON.stringify(note)}}`)),
		fc.constant(Buffer.from(`"${"long ".repeat(30_000)}"`)),
	),
	{ maxLength: 12 },
);

function capturedTexts(): string[] {
	return batchTexts().flatMap(([, text]) => eventsIn(text).map(stringifyExactJson));
}

async function columnsOf(contents: readonly Uint8Array[]): Promise<RecordColumn[]> {
	const events = contents.map((text, n) => ({ ...sampleEvent({ eventId: `e${n}` }), text }));
	const batch: NewEvents = { conversationId: "", receivedAt: 0n, events, effect: undefined };
	return (await packEvents(batch)).events.map(columnOfEvent);
}

test("texts of events are unchanged after packing and unpacking, also of batches at the same time", async () => {
	await fc.assert(
		fc.asyncProperty(fc.array(texts, { minLength: 1, maxLength: 3 }), async (batches) => {
			const packed = await Promise.all(batches.map(columnsOf));
			for (const [index, contents] of batches.entries()) {
				const columns = [...(packed[index] ?? []), ...contents.map(packRecord)];
				const expected = [...contents, ...contents].map((bytes) => bytes.toString("hex"));
				const unpack = unpackerOf(columns);
				expect(columns.map((column) => Buffer.from(unpack(column)).toString("hex"))).toEqual(expected);
				expect(columns.map((column) => Buffer.from(unpackRecord(column)).toString("hex"))).toEqual(expected);
			}
		}),
		{ numRuns: 50 },
	);
});

test("captured events take a seventh of their size, however they are compressed", async () => {
	const contents = capturedTexts().map((text) => Buffer.from(text));
	const size = (parts: readonly Uint8Array[]) => parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
	const columns = await Promise.all(contents.map(packTextAsync));
	expect(size(columns.map(({ record }) => record))).toBeLessThan(size(contents) / 7);
});

test("of several texts, only those that are damaged throw", async () => {
	const contents = capturedTexts()
		.slice(0, 5)
		.map((text) => Buffer.from(text));
	const columns = await Promise.all(contents.map(packTextAsync));
	const damaged = columns.map((column, index) => {
		// The checksum of the first one is wrong; the others have a right one for wrong bytes or a wrong size.
		if (index === 0) return { ...column, record: column.record.subarray(1) };
		if (index === 1) return packRecord(column.record.subarray(0, 20));
		return index === 2 ? { ...column, unpackedSize: (column.unpackedSize ?? 0) - 1 } : column;
	});
	const [first, second, third, ...others] = damaged.map((column, index) =>
		index === 1 ? { ...column, unpackedSize: contents[1]?.length ?? 0 } : column,
	);
	if (first === undefined || second === undefined || third === undefined) throw new Error("there are five events");
	const unpack = unpackerOf([first, second, third, ...others]);
	expect(() => unpack(first)).toThrow("the checksum of the record is wrong");
	expect(() => unpack(second)).toThrow();
	expect(() => unpack(third)).toThrow();
	expect(others.map((column) => Buffer.from(unpack(column)))).toEqual(contents.slice(3));
});
