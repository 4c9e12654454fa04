import pg from "pg";
import { ServiceError } from "../../errors.ts";

/**
 * A failure of the database. The words of PostgreSQL are in the cause only, and there without values of a row.
 *
 * @see https://www.postgresql.org/docs/18/errcodes-appendix.html
 */
export class DatabaseError extends ServiceError {
	/** SQLSTATE; undefined when the connection broke or the server did not answer in time. */
	readonly sqlState: string | undefined;

	constructor(kind: "unavailable" | "internal", message: string, cause: Error, sqlState: string | undefined) {
		super(kind, message, { cause });
		this.sqlState = sqlState;
	}

	/** Whether the connection is of no more use: it broke, or the server ends it. */
	get connectionLost(): boolean {
		return this.sqlState === undefined || /^(?:08|57P)/.test(this.sqlState) || this.sqlState === READ_ONLY;
	}

	/** Whether the same transaction may succeed when it runs again at once. */
	get mayRunAgain(): boolean {
		return this.connectionLost || this.sqlState === "40001" || this.sqlState === "40P01";
	}
}

/**
 * COMMIT was sent, and nothing says whether the server carried it out: the connection broke, or the server gave up
 * waiting for its synchronous standby.
 */
export class CommitUnknown extends DatabaseError {
	constructor(cause: Error) {
		super("unavailable", "the database did not say whether it committed", cause, undefined);
	}
}

/** The server is a standby, or is set to read only. */
const READ_ONLY = "25006";

/** What a failure means to a caller, by the beginning of its SQLSTATE; the first that fits counts. */
const MEANINGS: readonly (readonly [code: RegExp, message: string])[] = [
	[/^08/, "the database's connection broke"],
	[/^57P0[1-5]/, "the database is starting or stopping"],
	[/^53100/, "the database's disk is full"],
	[/^53300/, "the database has no connection left"],
	[/^53/, "the database has no resources left"],
	[/^55P03/, "the database's lock was not free in time"],
	[/^57014/, "the database did not finish in time"],
	[/^25P0[34]/, "the database did not finish in time"],
	[/^(?:26000|42P05)/, "the database is behind a pooler that needs POSTGRES_NOTIFY=off"],
	[/^40/, "the database could not order transactions that met"],
	[/^25006/, "the database is read-only"],
	[/^28/, "the database refuses the service's user"],
	[/^3D000/, "the database does not exist"],
	[/^(?:42|3F)/, "the database's schema or rights do not fit the service"],
	[/^58/, "the database's disk failed to read or write"],
];

/** Classes whose messages may hold values of a row: data exceptions, integrity, limits, internal errors. */
const TELLS_VALUES = /^(?:2[0-4]|27|44|54|P0|XX)/;

/**
 * The error for whatever the driver throws. `unavailable` when the database as a whole fails, `internal` when it fails at
 * one request.
 */
export function databaseError(error: unknown): ServiceError {
	if (error instanceof ServiceError) return error;
	if (!(error instanceof pg.DatabaseError) || error.code === undefined) {
		const cause = error instanceof Error ? error : new Error(String(error));
		return new DatabaseError("unavailable", "the database does not answer", cause, undefined);
	}
	const { code, message, constraint } = error;
	const told = TELLS_VALUES.test(code) ? (constraint === undefined ? "" : `constraint ${constraint} `) : `${message} `;
	const cause = new Error(`${told}(SQLSTATE ${code})`);
	const [, meaning] = MEANINGS.find(([pattern]) => pattern.test(code)) ?? [];
	return meaning === undefined
		? new DatabaseError("internal", "the store failed at this request", cause, code)
		: new DatabaseError("unavailable", meaning, cause, code);
}

/** The error that a caller of the store gets for whatever an operation throws. */
export function serviceError(error: unknown): ServiceError {
	if (error instanceof ServiceError) return error;
	return new ServiceError("internal", "the store failed at this request", { cause: error });
}

/**
 * The error of a COMMIT that failed. An ERROR leaves the session alive and means that the transaction was rolled back;
 * what ends the session may come before or after the commit.
 */
export function commitError(error: unknown): ServiceError {
	const failure = databaseError(error);
	if (!(failure instanceof DatabaseError) || failure instanceof CommitUnknown) return failure;
	const ended = failure.sqlState === undefined || /^(?:08|25P0[34]|57P|58|XX)/.test(failure.sqlState);
	return ended ? new CommitUnknown(failure) : failure;
}
