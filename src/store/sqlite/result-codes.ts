import { ServiceError } from "../../errors.ts";
import { type Failure, failureOf } from "../../threads/protocol.ts";

/** Extended result code of SQLite for a database file that was moved after it was opened. */
export const SQLITE_READONLY_DBMOVED = 1032;

const SQLITE_CORRUPT = 11;

/** SQLite result codes that concern the whole database, with the message that a client gets. */
const DATABASE_FAILURES: ReadonlyMap<number, string> = new Map([
	[3, "the service has no permission to access the store's database"],
	[5, "the store is locked by another process"],
	[6, "the store is locked by another process"],
	[7, "the store has no memory left"],
	[8, "the store is read-only"],
	[10, "the store's disk failed to read or write"],
	[SQLITE_CORRUPT, "the store's database is damaged"],
	[13, "the store is full"],
	[14, "the store's database cannot be opened"],
	[26, "the store's database is damaged or is not a database"],
	[SQLITE_READONLY_DBMOVED, "the store's database was moved, deleted or replaced"],
]);

/** Returns whether a failure concerns the whole database, so that other statements fail as well. */
export function isDatabaseFailure(failure: Failure): boolean {
	return clientMessageOf(failure) !== undefined;
}

/** Returns whether a statement failed because a page of the database is damaged. Others may succeed. */
export function isDamage(error: unknown): error is Error {
	const { code } = failureOf(error);
	return code !== undefined && (code & 0xff) === SQLITE_CORRUPT;
}

/** Returns the message for an extended result code, or else for the primary code, which is its lowest byte. */
function clientMessageOf({ code }: Failure): string | undefined {
	return code === undefined ? undefined : (DATABASE_FAILURES.get(code) ?? DATABASE_FAILURES.get(code & 0xff));
}

/**
 * Returns the error for a caller of the store: `unavailable` when the failure concerns the whole database, otherwise
 * `internal`. Only its cause has SQLite's own message.
 */
export function storeError(failure: Failure): ServiceError {
	const { code, message } = failure;
	const cause = new Error(code === undefined ? message : `${message} (SQLite result code ${code})`);
	const clientMessage = clientMessageOf(failure);
	return clientMessage === undefined
		? new ServiceError("internal", "the store failed while processing this request", { cause })
		: new ServiceError("unavailable", clientMessage, { cause });
}

/** Returns the error for a store thread that ended, or a database that cannot be opened: always `unavailable`. */
export function unavailable(failure: Failure): ServiceError {
	const error = storeError(failure);
	return error.kind === "unavailable"
		? error
		: new ServiceError("unavailable", "the store failed", { cause: error.cause });
}
