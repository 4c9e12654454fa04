import { ServiceError } from "../../errors.ts";
import type { RangeQuery } from "../../store/sequence-log.ts";
import type { EntryLog, LogEntry } from "../read/entry-log.ts";

/**
 * Asserts that no entry that a reader of a log has still to receive has been pruned. Call it after reading the entries,
 * so that pruning during the read is noticed. Only the conversation of a pruned entry is known, so the entry counts as
 * missing even if the reader's filter would have excluded it.
 *
 * @param after sequence through which the reader has received everything
 * @param query the only conversation that the reader requests; for a reader from the beginning, the last removal before
 *   it started, because it requests the entries that were stored then
 * @throws ServiceError `out_of_range` that names the oldest sequence to start after, or `unavailable` when the store
 *   cannot be read
 */
export async function assertNotPruned<Entry extends LogEntry>(
	{ name, log }: EntryLog<Entry>,
	after: bigint,
	query: RangeQuery,
): Promise<void> {
	const { prunedThrough } = await log.range(query);
	if (prunedThrough <= after) return;
	throw new ServiceError(
		"out_of_range",
		`${name} after sequence ${after} have been pruned; start after sequence ${prunedThrough} or later, ` +
			`or after 0 to receive all ${name.toLowerCase()} that are kept`,
	);
}

/**
 * Asserts that a sequence is not beyond the newest one of a log.
 *
 * @throws ServiceError `out_of_range` that names the newest sequence
 */
export function assertNotBeyondNewest(after: bigint, newest: bigint): void {
	if (after <= newest) return;
	throw new ServiceError(
		"out_of_range",
		`after_sequence ${after} is beyond the newest sequence, which is ${newest}: it comes from another store`,
	);
}
