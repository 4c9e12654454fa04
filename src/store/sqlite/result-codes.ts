import { ServiceError } from "../../errors.ts";
import type { Failure } from "../../threads/failure.ts";
import { MOVED } from "./open-files.ts";

/** Result codes of SQLite that concern the database as a whole, with what a client may know of each. */
const DATABASE_FAILURES: ReadonlyMap<number, string> = new Map([
	[3, "the store's database may not be accessed"],
	[5, "the store is locked by another process"],
	[6, "the store is locked by another process"],
	[7, "the store has no memory left"],
	[8, "the store is read-only"],
	[10, "the store's disk failed to read or write"],
	[11, "the store's database is damaged"],
	[13, "the store is full"],
	[14, "the store's database cannot be opened"],
	[26, "the store's database is damaged or is not a database"],
	[MOVED, "the store's database was moved, deleted or replaced"],
]);

/** Whether the failure lies in the database as a whole, so that other statements meet it too. */
export function isDatabaseFailure(failure: Failure): boolean {
	return meaningOf(failure) !== undefined;
}

/** What an extended code says, or the primary code that is its lowest byte. */
function meaningOf({ code }: Failure): string | undefined {
	return code === undefined ? undefined : (DATABASE_FAILURES.get(code) ?? DATABASE_FAILURES.get(code & 0xff));
}

/**
 * The error that a caller of the store gets: `unavailable` for the database as a whole, `internal` for one request.
 * SQLite's own words are in its cause only.
 */
export function storeError(failure: Failure): ServiceError {
	const { code, message } = failure;
	const cause = new Error(code === undefined ? message : `${message} (SQLite result code ${code})`);
	const meaning = meaningOf(failure);
	return meaning === undefined
		? new ServiceError("internal", "the store failed at this request", { cause })
		: new ServiceError("unavailable", meaning, { cause });
}

/** The error for a thread of the store that ended, or a database that cannot be opened: always `unavailable`. */
export function unavailable(failure: Failure): ServiceError {
	const error = storeError(failure);
	return error.kind === "unavailable"
		? error
		: new ServiceError("unavailable", "the store failed", { cause: error.cause });
}
