import type { StatementSync } from "node:sqlite";

/** A row as node:sqlite gives it. */
export type Row = ReturnType<StatementSync["all"]>[number];

const MAX_INTEGER = 2n ** 63n - 1n;

/** An INTEGER column. */
export function bigint(value: unknown): bigint {
	if (typeof value !== "bigint") throw unexpected("an integer", value);
	return value;
}

/** An INTEGER column whose values are safe integers. */
export function integer(value: unknown): number {
	return Number(bigint(value));
}

/** A TEXT column. */
export function text(value: unknown): string {
	if (typeof value !== "string") throw unexpected("a text", value);
	return value;
}

/** A BLOB column. */
export function blob(value: unknown): Uint8Array {
	if (!(value instanceof Uint8Array)) throw unexpected("a blob", value);
	return value;
}

/** Reads a column that may be NULL with one of the readers of this file. */
export function nullable<T>(read: (value: unknown) => T, value: unknown): T | undefined {
	return value === null ? undefined : read(value);
}

function unexpected(wanted: string, value: unknown): TypeError {
	return new TypeError(`the database holds ${value === undefined ? "nothing" : typeof value} in place of ${wanted}`);
}

/** The nearest value that an INTEGER column can hold, so that a bound of a query never fails to bind. */
export function bindable(value: bigint): bigint {
	if (value > MAX_INTEGER) return MAX_INTEGER;
	return value < -MAX_INTEGER ? -MAX_INTEGER : value;
}
