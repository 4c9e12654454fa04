import { bigint, nullable, text } from "../values.ts";
import { SQLITE } from "./dialect.ts";
import type { Statements } from "./statements.ts";

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
	const { updates, events } = SQLITE.dialect.newest;
	const row = statements.prepare(`SELECT open_run, ${updates} AS updates, ${events} AS events FROM state`).get();
	const open = nullable(text, row?.open_run);
	if (open === runId) return true;
	const isClean = open === undefined && !hasLog;
	if (!isClean)
		statements
			.prepare("UPDATE state SET newest_update = ?, newest_event = ?")
			.run(bigint(row?.updates) + SKIPPED, bigint(row?.events) + SKIPPED);
	statements.prepare("UPDATE state SET open_run = ?").run(runId);
	return isClean;
}

/** Ends the run: the stop is clean. */
export function endRun(statements: Statements): void {
	statements.prepare("UPDATE state SET open_run = NULL").run();
}
