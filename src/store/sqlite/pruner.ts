import type { WorkerThread } from "../../threads/worker-thread.ts";
import type { PrunePolicy } from "../store.ts";
import type { ReaderCalls } from "./reader.ts";
import type { WriterCalls } from "./writer.ts";

/** Maximum number of updates and events that one transaction removes, so that appends do not wait long. */
const MAX_REMOVED_AT_ONCE = 100;

/**
 * Removes the history that a retention policy no longer keeps. The reader thread searches for it, and the writer thread
 * removes it between appends, so that a search through many conversations delays no append.
 */
export class Pruner {
	readonly #writer: WorkerThread<WriterCalls>;
	readonly #reader: WorkerThread<ReaderCalls>;
	/** Row id of the conversation after which the next search begins. */
	#after = 0n;

	constructor(writer: WorkerThread<WriterCalls>, reader: WorkerThread<ReaderCalls>) {
		this.#writer = writer;
		this.#reader = reader;
	}

	/**
	 * Removes up to `policy.limit` updates and events; fewer only if it searched all conversations. Returns the number.
	 */
	async prune(policy: PrunePolicy): Promise<number> {
		const { limit, updatesPerConversation } = policy;
		const receivedBefore = policy.receivedBefore ?? -(2n ** 62n);
		const below = await this.#reader.calls.firstReceivedSince({ log: "updates", time: receivedBefore });
		let removed = await removeInBatches(limit, (batchLimit) =>
			this.#writer.calls.removeDeleted({ below, receivedBefore, limit: batchLimit }),
		);
		const start = this.#after;
		let wrapped = start === 0n;
		while (removed < limit) {
			const batchLimit = Math.min(limit - removed, MAX_REMOVED_AT_ONCE);
			const { sequences, next } = await this.#reader.calls.findPrunable({
				after: this.#after,
				limit: batchLimit,
				below,
				receivedBefore,
				updatesPerConversation,
			});
			if (sequences.length > 0) removed += await this.#writer.calls.removeUpdates(sequences);
			this.#after = next ?? 0n;
			if (wrapped && (next === undefined || (start > 0n && next >= start))) break;
			wrapped ||= next === undefined;
		}
		return removed;
	}

	/** Removes up to `limit` events received before a time; fewer only if there are no more. Returns the number. */
	async pruneEvents(receivedBefore: bigint, limit: number): Promise<number> {
		const below = await this.#reader.calls.firstReceivedSince({ log: "events", time: receivedBefore });
		return await removeInBatches(limit, (batchLimit) =>
			this.#writer.calls.removeEvents({ below, receivedBefore, limit: batchLimit }),
		);
	}
}

/** Calls `remove` in batches until one removes less than its limit, or `limit` is reached. Returns the total number. */
async function removeInBatches(limit: number, remove: (batchLimit: number) => Promise<number>): Promise<number> {
	let removed = 0;
	while (removed < limit) {
		const batchLimit = Math.min(limit - removed, MAX_REMOVED_AT_ONCE);
		const removedNow = await remove(batchLimit);
		removed += removedNow;
		if (removedNow < batchLimit) break;
	}
	return removed;
}
