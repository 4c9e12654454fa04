import { hash } from "node:crypto";
import type { ProtectedRecord } from "../record/record-delta.ts";

/** A row as a database driver returns it, with 64-bit integers as bigints. The functions below read its columns. */
export type Row = Readonly<Record<string, unknown>>;

const MAX_INTEGER = 2n ** 63n - 1n;

/** Reads a column of integers. */
export function bigint(value: unknown): bigint {
	if (typeof value !== "bigint") throw unexpected("an integer", value);
	return value;
}

/** Reads a column of safe integers. */
export function integer(value: unknown): number {
	return Number(bigint(value));
}

/** Reads a column of texts. */
export function text(value: unknown): string {
	if (typeof value !== "string") throw unexpected("a text", value);
	return value;
}

/** Reads a column of byte strings. */
export function blob(value: unknown): Uint8Array {
	if (!(value instanceof Uint8Array)) throw unexpected("bytes", value);
	return value;
}

/** Reads a column of booleans. An engine without a boolean type stores the integers 0 and 1. */
export function boolean(value: unknown): boolean {
	if (typeof value === "boolean") return value;
	if (typeof value !== "bigint") throw unexpected("a boolean", value);
	return value === 1n;
}

/** Reads a column that may be null; `read` reads the other values. */
export function nullable<T>(read: (value: unknown) => T, value: unknown): T | undefined {
	return value === null ? undefined : read(value);
}

function unexpected(wanted: string, value: unknown): TypeError {
	return new TypeError(
		`expected ${wanted} in a column of the database, found ${value === undefined ? "nothing" : typeof value}`,
	);
}

/** Returns the greater one of two integers. */
export function max(one: bigint, other: bigint): bigint {
	return one > other ? one : other;
}

/** Returns the smaller one of two integers. */
export function min(one: bigint, other: bigint): bigint {
	return one < other ? one : other;
}

/** Clamps a value to the range of a 64-bit integer column, so that it can be bound as a query parameter. */
export function bindable(value: bigint): bigint {
	return max(-MAX_INTEGER, min(MAX_INTEGER, value));
}

/** A record of an update: whole, or a delta. */
export type StoredRecord = ProtectedRecord;

/** A record, or the text of an event, as the columns of a row hold it. */
export interface RecordColumn {
	readonly record: Uint8Array;
	/** Size in bytes before compression; null when `record` is not compressed. */
	readonly unpackedSize: number | null;
	/** CRC-32 of `record`. */
	readonly checksum: number;
}

/** Stands for a record or an event that cannot be read from the disk, or differs from what was written. */
export interface Unreadable {
	/** The engine's error message, for the log. */
	readonly unreadable: string;
}

/** Maximum length of a text that an index holds whole, in UTF-16 code units. An entry in PostgreSQL has at most 2,704 bytes. */
const MAX_KEY_LENGTH = 256;

/**
 * Returns a text as a column of the type `key` has it: a long one is cut, with the SHA-256 of the whole text in place of the
 * rest.
 */
export function keyOf(text: string): string {
	if (text.length <= MAX_KEY_LENGTH) return text;
	return `${text.slice(0, MAX_KEY_LENGTH)}…${hash("sha256", text, "hex")}`.toWellFormed();
}

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;

/** Returns whether a text can be the id of a stored conversation: a UUID in lower case with dashes. */
export function isConversationId(id: string): boolean {
	return UUID.test(id);
}
