import type { LogTable } from "../sequence-log.ts";
import { bigint, nullable, text } from "../values.ts";
import { SQLITE } from "./dialect.ts";
import type { Statements } from "./statements.ts";

/** Returns the largest sequence of a log that was assigned or skipped. */
export function newestOf(statements: Statements, log: LogTable): bigint {
	const { removals, entries } = SQLITE.dialect;
	return bigint(
		statements.prepare(`SELECT ${entries[log].used} AS newest FROM ${removals} r WHERE r.log = ?`).get(log)?.newest,
	);
}

/** Skips the next `count` sequences of a log, so that no entry ever gets them. Returns the last of them. */
export function skipSequences(statements: Statements, log: LogTable, count: bigint): bigint {
	const through = newestOf(statements, log) + count;
	statements.prepare(SQLITE.dialect.entries[log].skip).run(through);
	return through;
}

/**
 * Number of sequences of each log that are skipped after a stop that was not clean. When the disk has damaged the end of
 * the write-ahead log, SQLite ignores it without an error, and the commits in it are lost. Their sequences may be known to
 * readers. The fastest measured sender would need 18 hours to write as many updates into one log.
 */
const SKIPPED = 10n ** 9n;

/**
 * Begins a run of the service: skips sequences that a lost commit may have had, unless the last stop was clean or this run
 * has begun before, in a thread that has ended. The caller has begun a transaction.
 *
 * @param runId unique id of the run
 * @param hasLog whether the database had a write-ahead log with frames before it was opened
 * @returns whether the last stop was clean
 */
export function beginRun(statements: Statements, runId: string, hasLog: boolean): boolean {
	const open = nullable(text, statements.prepare("SELECT open_run FROM store_state").get()?.open_run);
	if (open === runId) return true;
	const isClean = open === undefined && !hasLog;
	if (!isClean) for (const log of ["updates", "events"] as const) skipSequences(statements, log, SKIPPED);
	statements.prepare("UPDATE store_state SET open_run = ?").run(runId);
	return isClean;
}

/** Ends the run: the stop is clean. */
export function endRun(statements: Statements): void {
	statements.prepare("UPDATE store_state SET open_run = NULL").run();
}
