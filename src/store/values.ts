/** A row as a database's driver gives it: integers of 64 bits as bigints. The functions of this file read its columns. */
export type Row = Readonly<Record<string, unknown>>;

const MAX_INTEGER = 2n ** 63n - 1n;

/** A column of integers. */
export function bigint(value: unknown): bigint {
	if (typeof value !== "bigint") throw unexpected("an integer", value);
	return value;
}

/** A column of safe integers. */
export function integer(value: unknown): number {
	return Number(bigint(value));
}

/** A column of texts. */
export function text(value: unknown): string {
	if (typeof value !== "string") throw unexpected("a text", value);
	return value;
}

/** A column of byte strings. */
export function blob(value: unknown): Uint8Array {
	if (!(value instanceof Uint8Array)) throw unexpected("bytes", value);
	return value;
}

/** A column of booleans, which are the integers 0 and 1 where the database has none. */
export function boolean(value: unknown): boolean {
	if (typeof value === "boolean") return value;
	if (typeof value !== "bigint") throw unexpected("a boolean", value);
	return value === 1n;
}

/** Reads a column that may be null with one of the readers of this file. */
export function nullable<T>(read: (value: unknown) => T, value: unknown): T | undefined {
	return value === null ? undefined : read(value);
}

function unexpected(wanted: string, value: unknown): TypeError {
	return new TypeError(`the database holds ${value === undefined ? "nothing" : typeof value} in place of ${wanted}`);
}

/** The nearest value that a column of integers can hold, so that a bound of a query never fails to bind. */
export function bindable(value: bigint): bigint {
	if (value > MAX_INTEGER) return MAX_INTEGER;
	return value < -MAX_INTEGER ? -MAX_INTEGER : value;
}
