import type { LogTable, RangeQuery, SequenceRange } from "../sequence-log.ts";
import { bigint, nullable, text } from "../values.ts";
import type { Statements } from "./statements.ts";

/** Returns the newest sequence number of a log, and how far it was pruned. */
export function readRange(statements: Statements, log: LogTable, query: RangeQuery): SequenceRange {
	const state = statements
		.prepare(
			`SELECT pruned_through, last_removal,
				max(pruned_through, skipped_through, (SELECT coalesce(max(sequence), 0) FROM ${log})) AS newest
			FROM logs WHERE log = ?`,
		)
		.get(log);
	const isOfAll = Object.values(query).every((value) => value === undefined);
	return {
		newest: bigint(state?.newest),
		prunedThrough: isOfAll ? bigint(state?.pruned_through) : prunedThrough(statements, log, query),
		lastRemoval: bigint(state?.last_removal),
	};
}

function prunedThrough(
	statements: Statements,
	log: LogTable,
	{ conversationId, owner, afterRemoval }: RangeQuery,
): bigint {
	const tests = ["log = ?"];
	if (conversationId !== undefined) tests.push("conversation_id = ?");
	if (owner !== undefined) tests.push("owner = ?");
	if (afterRemoval !== undefined) tests.push("removal > ?");
	const row = statements
		.prepare(`SELECT max(through) AS through FROM pruned WHERE ${tests.join(" AND ")}`)
		.get(log, ...[conversationId, owner, afterRemoval].filter((value) => value !== undefined));
	return nullable(bigint, row?.through) ?? 0n;
}

/** Skips the next `count` sequence numbers of a log, so that no entry ever gets them. */
export function skipSequences(statements: Statements, log: LogTable, count: bigint): void {
	const through = readRange(statements, log, {}).newest + count;
	statements.prepare("UPDATE logs SET skipped_through = ? WHERE log = ?").run(through, log);
}

/** Returns the time that `Store.saveRetentionTime` stored last; undefined when there is none. */
export function readRetentionTime(statements: Statements): bigint | undefined {
	return nullable(bigint, statements.prepare("SELECT clock FROM store_state").get()?.clock);
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
