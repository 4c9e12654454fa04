import { ServiceError } from "../../errors.ts";
import type { Store } from "../../store/store.ts";

/**
 * Makes sure that nothing after a sequence number has been pruned. To be called after the updates were read, so that
 * pruning in between does not go unnoticed.
 *
 * @param after 0 stands for the oldest update that is kept, and is always there
 * @param conversationId the only conversation whose updates matter; undefined for all
 * @throws ServiceError `out_of_range` that names the oldest sequence number to start after, or `unavailable`
 */
export async function assertKept(store: Store, after: bigint, conversationId?: string): Promise<void> {
	if (after === 0n) return;
	const { oldest } = await store.range();
	if (after >= oldest - 1n) return;
	if (conversationId !== undefined && (await keepsAllAfter(store, after, conversationId))) return;
	throw new ServiceError(
		"out_of_range",
		`Updates after sequence ${after} have been pruned; the oldest sequence to start after is ${oldest - 1n}, ` +
			"and 0 gives all updates that are kept",
	);
}

/**
 * Whether a conversation certainly has all its updates after a sequence. The oldest of its history are pruned first,
 * and its current record never is: so nothing was pruned after an update of its history that is still there.
 */
async function keepsAllAfter(store: Store, after: bigint, conversationId: string): Promise<boolean> {
	const [first] = await store.listUpdates({ after: 0n, conversationId, limit: 1, withRecords: false });
	if (first === undefined || (first.sequence > after && first.previousSequence !== undefined)) return false;
	const current = await store.get(conversationId);
	return current !== undefined && current.sequence !== first.sequence;
}
