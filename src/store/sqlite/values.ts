import type { Change } from "../store.ts";

const maxInteger = 2n ** 63n - 1n;
const changes: readonly Change[] = ["started", "paused", "resumed", "deleted", "updated"];

/** An INTEGER column of a statement that reads numbers. */
export function integer(value: unknown): number {
	if (typeof value !== "number") throw unexpected("a number", value);
	return value;
}

/** An INTEGER column of a statement that reads bigints. */
export function bigint(value: unknown): bigint {
	if (typeof value !== "bigint") throw unexpected("a bigint", value);
	return value;
}

export function text(value: unknown): string {
	if (typeof value !== "string") throw unexpected("a text", value);
	return value;
}

export function blob(value: unknown): Uint8Array {
	if (!(value instanceof Uint8Array)) throw unexpected("a blob", value);
	return value;
}

/** Reads a column that may be NULL with one of the readers of this file. */
export function nullable<T>(read: (value: unknown) => T, value: unknown): T | undefined {
	return value === null ? undefined : read(value);
}

export function changeOf(value: unknown): Change {
	const change = changes.find((known) => known === value);
	if (change === undefined) throw unexpected("a change", value);
	return change;
}

function unexpected(wanted: string, value: unknown): TypeError {
	return new TypeError(`the database holds ${value === undefined ? "nothing" : typeof value} in place of ${wanted}`);
}

/** The nearest value that an INTEGER column can hold, so that a bound of a query never fails to bind. */
export function bindable(value: bigint): bigint {
	if (value > maxInteger) return maxInteger;
	return value < -maxInteger ? -maxInteger : value;
}
