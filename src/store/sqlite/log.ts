import type { LogTable } from "../rows.ts";
import type { RangeQuery, SequenceRange } from "../store.ts";
import { bigint, bindable, nullable } from "../values.ts";
import type { Statements } from "./statements.ts";

/** Which sequences a log has, and what was pruned of it. */
export function readRange(
	statements: Statements,
	log: LogTable,
	{ conversationId, afterRemoval }: RangeQuery,
): SequenceRange {
	const state = statements
		.prepare(
			`SELECT pruned_through, last_removal,
				max(pruned_through, skipped_through, (SELECT coalesce(max(sequence), 0) FROM ${log})) AS newest
			FROM logs WHERE log = ?`,
		)
		.get(log);
	const prunedOfAll = bigint(state?.pruned_through);
	return {
		newest: bigint(state?.newest),
		prunedThrough:
			conversationId === undefined && afterRemoval === undefined
				? prunedOfAll
				: prunedThrough(statements, log, conversationId, afterRemoval ?? -1n),
		lastRemoval: bigint(state?.last_removal),
	};
}

function prunedThrough(
	statements: Statements,
	log: LogTable,
	conversationId: string | undefined,
	afterRemoval: bigint,
): bigint {
	const sql = "SELECT max(through) AS through FROM pruned WHERE log = ? AND removal > ?";
	const row =
		conversationId === undefined
			? statements.prepare(sql).get(log, afterRemoval)
			: statements.prepare(`${sql} AND conversation_id = ?`).get(log, afterRemoval, conversationId);
	return nullable(bigint, row?.through) ?? 0n;
}

/** Returns a function that gives the sequences that follow a log's newest one, which is looked up at its first call. */
export function numbering(statements: Statements, log: LogTable): () => bigint {
	let sequence: bigint | undefined;
	return () => {
		sequence = (sequence ?? readRange(statements, log, {}).newest) + 1n;
		return sequence;
	};
}

/** Gives none of the next `count` sequences of a log any more. */
export function skipSequences(statements: Statements, log: LogTable, count: bigint): void {
	const through = readRange(statements, log, {}).newest + count;
	statements.prepare("UPDATE logs SET skipped_through = ? WHERE log = ?").run(through, log);
}

/**
 * The first sequence of a log that was not received before a time (microseconds since the Unix epoch). It is found by
 * bisection, without an index on the time, because sequences are given in the order of receipt.
 */
export function firstReceivedAfter(statements: Statements, log: LogTable, time: bigint): bigint {
	const at = statements.prepare(`
		SELECT sequence, received_at < ? AS before FROM ${log} WHERE sequence >= ? ORDER BY sequence LIMIT 1
	`);
	const newest = statements.prepare(`SELECT coalesce(max(sequence), 0) AS sequence FROM ${log}`).get();
	let low = 1n;
	let high = bigint(newest?.sequence) + 1n;
	while (low < high) {
		const middle = (low + high) / 2n;
		const row = at.get(bindable(time), middle);
		if (row?.before === 1n) low = bigint(row.sequence) + 1n;
		else high = middle;
	}
	return low;
}

/** What `Store.keepClock` has kept. */
export function readClock(statements: Statements): bigint | undefined {
	return nullable(bigint, statements.prepare("SELECT clock FROM store_state").get()?.clock);
}
