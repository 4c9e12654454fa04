import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { loadRecord, recordSize, storeRecord } from "../../src/store/sqlite/records.ts";

const repetitive = Buffer.from("Always use tabs. ".repeat(5_000));

test.each([
	["a short record", Buffer.from("x".repeat(1_000)), null],
	["a long record that does not repeat itself", randomBytes(100_000), null],
	["a long record that does", repetitive, repetitive.length],
])("%s is given back as it was", (_, record, unpackedSize) => {
	const stored = storeRecord(record);
	expect(stored.unpackedSize).toBe(unpackedSize);
	expect(recordSize(stored.record, stored.unpackedSize)).toBe(record.length);
	expect(Buffer.compare(loadRecord(stored.record, stored.unpackedSize), record)).toBe(0);
});

test("what repeats itself takes little room", () => {
	expect(storeRecord(repetitive).record.length).toBeLessThan(repetitive.length / 50);
});

test("a damaged record is an error", () => {
	const { record, unpackedSize } = storeRecord(repetitive);
	expect(() => loadRecord(record.subarray(0, record.length - 10), unpackedSize)).toThrow();
	expect(() => loadRecord(record, 100)).toThrow();
});
