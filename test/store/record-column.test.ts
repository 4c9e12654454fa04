import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { packRecord, packSecrets, unpackRecord, unpackSecrets } from "../../src/store/record-column.ts";

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
