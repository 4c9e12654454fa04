import { ServiceError } from "../../errors.ts";
import type { Failure } from "../../threads/failure.ts";

// Primary result codes of SQLite, with what a client may know of each.
const meanings: ReadonlyMap<number, string> = new Map([
	[3, "the store's database may not be accessed"],
	[5, "the store is locked by another process"],
	[6, "the store is locked by another process"],
	[8, "the store is read-only"],
	[10, "the store's disk failed to read or write"],
	[11, "the store's database is damaged"],
	[13, "the store is full"],
	[14, "the store's database cannot be opened"],
	[26, "the store's database is damaged or is not a database"],
]);

/** Whether the failure lies in the database as a whole, so that any other statement would meet it too. */
export function isGeneral(failure: Failure): boolean {
	return failure.code !== undefined && meanings.has(failure.code & 0xff);
}

/** The error that a caller of the store gets. SQLite's own words are in its cause only. */
export function unavailable(failure: Failure): ServiceError {
	const meaning = failure.code === undefined ? undefined : meanings.get(failure.code & 0xff);
	const code = failure.code === undefined ? "" : ` (SQLite result code ${failure.code})`;
	return new ServiceError("unavailable", meaning ?? "the store failed", {
		cause: new Error(`${failure.message}${code}`),
	});
}
