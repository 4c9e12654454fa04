import { ServiceError } from "../../errors.ts";
import type { RangeQuery } from "../../store/store.ts";
import type { EntryLog, LogEntry } from "../read/entry-log.ts";

/**
 * Makes sure that no entry of a log that a reader has not been given yet has been pruned. To be called after the entries
 * were read, so that pruning in between does not go unnoticed. Of a pruned entry only the conversation is known, so a
 * reader with a filter counts as one that would have been given it.
 *
 * @param after sequence through which the reader has been given everything
 * @param query the only conversation that the reader asks for; for a reader from the beginning the last removal before
 *   it began, as it asks for what was stored then
 * @throws ServiceError `out_of_range` that names the oldest sequence number to start after, or `unavailable`
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
		`${name} after sequence ${after} have been pruned; the oldest sequence to start after is ${prunedThrough}, ` +
			`and 0 gives all ${name.toLowerCase()} that are kept`,
	);
}

/**
 * Makes sure that a sequence has been given to an entry.
 *
 * @throws ServiceError `out_of_range` that names the newest sequence
 */
export function assertReached(after: bigint, newest: bigint): void {
	if (after <= newest) return;
	throw new ServiceError(
		"out_of_range",
		`after_sequence ${after} is beyond the newest sequence, which is ${newest}: it comes from another store`,
	);
}
