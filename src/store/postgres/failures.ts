import pg from "pg";
import { ServiceError } from "../../errors.ts";

/**
 * An error of the database. Only its cause has PostgreSQL's message, and never one with values of a row.
 *
 * @see https://www.postgresql.org/docs/18/errcodes-appendix.html
 */
export class DatabaseError extends ServiceError {
	/** SQLSTATE; undefined when the connection broke or the server did not answer in time. */
	readonly sqlState: string | undefined;
	/**
	 * Whether a coordinator of Citus cannot reach a server that has a part of the rows. The connection to the coordinator is
	 * sound: an error of the session itself has the severity FATAL.
	 */
	readonly isPartAway: boolean;

	constructor(
		kind: "unavailable" | "internal",
		message: string,
		cause: Error,
		sqlState: string | undefined,
		isPartAway = false,
	) {
		super(kind, message, { cause });
		this.sqlState = sqlState;
		this.isPartAway = isPartAway;
	}

	/** Whether the connection can no longer be used: it broke, the server ends it, or the server is read-only. */
	get connectionLost(): boolean {
		if (this.isPartAway) return false;
		return this.sqlState === undefined || BROKEN.test(this.sqlState) || this.sqlState === READ_ONLY;
	}

	/** Whether a retry of the transaction may succeed at once. */
	get isRetryable(): boolean {
		return this.connectionLost || this.sqlState === "40001" || this.sqlState === "40P01";
	}
}

/**
 * COMMIT was sent and its outcome is unknown: the connection broke, or the server stopped waiting for its synchronous
 * standby.
 */
export class CommitUnknown extends DatabaseError {
	constructor(cause: Error) {
		super("unavailable", "the database did not report whether the commit succeeded", cause, undefined);
	}
}

/** SQLSTATE of broken connections, and of servers that end them. */
const BROKEN = /^(?:08|57P)/;
/** SQLSTATE of a write on a standby, or on a server that is set to read-only. */
const READ_ONLY = "25006";

/** Messages for the caller, by the prefix of the SQLSTATE. The first match applies. */
const MESSAGES: readonly (readonly [code: RegExp, message: string])[] = [
	[/^08/, "the connection to the database broke"],
	[/^57P0[1-5]/, "the database is starting or stopping"],
	[/^53100/, "the database's disk is full"],
	[/^53300/, "the database has reached a connection limit"],
	[/^53/, "the database has no resources left"],
	[/^55P03/, "a lock in the database was not released in time"],
	[/^57014/, "the database did not finish in time"],
	[/^25P0[34]/, "the database did not finish in time"],
	[/^(?:26000|42P05)/, "the database is behind a pooler that needs POSTGRES_NOTIFY=off"],
	[/^40/, "the database aborted conflicting transactions"],
	[/^25006/, "the database is read-only"],
	[/^28/, "the database rejects the service's user or password"],
	[/^3D000/, "the database does not exist"],
	[/^(?:42|3F)/, "the database's schema or the service's privileges are not as required"],
	[/^58/, "the database's disk failed to read or write"],
];

/**
 * Classes of SQLSTATE whose messages may contain values of a row: data exceptions, integrity constraint violations,
 * limits, internal errors.
 */
const WITH_VALUES = /^(?:2[0-4]|27|44|54|P0|XX)/;

/** Converts an error of the driver: `unavailable` if the database as a whole fails, `internal` if one request fails. */
export function databaseError(error: unknown): ServiceError {
	if (error instanceof ServiceError) return error;
	if (!(error instanceof pg.DatabaseError) || error.code === undefined) {
		const cause = error instanceof Error ? error : new Error(String(error));
		return new DatabaseError("unavailable", "the database does not answer", cause, undefined);
	}
	const { code, message, constraint, severity } = error;
	const detail = WITH_VALUES.test(code) ? (constraint === undefined ? "" : `constraint ${constraint} `) : `${message} `;
	const cause = new Error(`${detail}(SQLSTATE ${code})`);
	if ((BROKEN.test(code) && severity === "ERROR") || isWorkerLost(error))
		return new DatabaseError("unavailable", "a part of the database cannot be reached", cause, code, true);
	const [, shown] = MESSAGES.find(([pattern]) => pattern.test(code)) ?? [];
	return shown === undefined
		? new DatabaseError("internal", "the store failed while processing this request", cause, code)
		: new DatabaseError("unavailable", shown, cause, code);
}

/**
 * Returns whether Citus reports with the SQLSTATE of internal errors that a worker was lost: with the message of libpq while it
 * waited for a result, with its own before it commits.
 */
function isWorkerLost({ code, message, where }: pg.DatabaseError): boolean {
	if (code !== "XX000") return false;
	return LOST_BY_CITUS.test(message) || (COMMAND_OF_CITUS.test(where ?? "") && LOST_BY_LIBPQ.test(message));
}

const LOST_BY_CITUS = /^(?:failure on connection marked as essential|failed to prepare transaction)/;
const COMMAND_OF_CITUS = /^while executing command on /m;
const LOST_BY_LIBPQ = /^(?:$|server closed the connection|could not (?:receive|send) |no connection|SSL )/;

/** Converts an error of an operation to the one that a caller of the store gets. */
export function serviceError(error: unknown): ServiceError {
	if (error instanceof ServiceError) return error;
	return new ServiceError("internal", "the store failed while processing this request", { cause: error });
}

/**
 * Converts the error of a failed COMMIT. An error that leaves the session alive means that the transaction was rolled
 * back. An error that ends the session may come before or after the commit.
 */
export function commitError(error: unknown): ServiceError {
	const failure = databaseError(error);
	if (!(failure instanceof DatabaseError) || failure instanceof CommitUnknown || failure.isPartAway) return failure;
	const ended = failure.sqlState === undefined || /^(?:08|25P0[34]|57P|58|XX)/.test(failure.sqlState);
	return ended ? new CommitUnknown(failure) : failure;
}
