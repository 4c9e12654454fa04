import type { WorkerThread } from "../../threads/worker-thread.ts";
import type { PrunePolicy } from "../store.ts";
import type { ReaderCalls, WriterCalls } from "./calls.ts";

/** Updates and events that one transaction removes, so that appends need not wait long. */
const MAX_REMOVED = 100;

/**
 * Removes what a policy no longer keeps. The reading thread looks for it, and the writing thread removes it between its
 * appends, so that a search through many conversations holds up no append.
 */
export class Pruner {
	readonly #writer: WorkerThread<WriterCalls>;
	readonly #reader: WorkerThread<ReaderCalls>;
	/** Row id of the conversation after which the next step looks. */
	#after = 0n;

	constructor(writer: WorkerThread<WriterCalls>, reader: WorkerThread<ReaderCalls>) {
		this.#writer = writer;
		this.#reader = reader;
	}

	/** Removes up to the policy's limit; fewer only when every conversation was looked at. */
	async step(policy: PrunePolicy): Promise<number> {
		const { limit, updatesPerConversation } = policy;
		const receivedBefore = policy.receivedBefore ?? -(2n ** 62n);
		const below = await this.#reader.call("firstReceivedAfter", { log: "updates", time: receivedBefore });
		let removed = await removeRepeatedly(limit, (most) =>
			this.#writer.call("removeDeleted", { below, receivedBefore, limit: most }),
		);
		const start = this.#after;
		let wrapped = start === 0n;
		while (removed < limit) {
			const most = Math.min(limit - removed, MAX_REMOVED);
			const { sequences, next } = await this.#reader.call("findPrunable", {
				after: this.#after,
				limit: most,
				below,
				receivedBefore,
				updatesPerConversation,
			});
			if (sequences.length > 0) removed += await this.#writer.call("removeUpdates", sequences);
			this.#after = next ?? 0n;
			if (wrapped && (next === undefined || (start > 0n && next >= start))) break;
			wrapped ||= next === undefined;
		}
		return removed;
	}

	/** Removes up to `limit` events that were received before a time; fewer only when there are no more. */
	async events(receivedBefore: bigint, limit: number): Promise<number> {
		const below = await this.#reader.call("firstReceivedAfter", { log: "events", time: receivedBefore });
		return await removeRepeatedly(limit, (most) =>
			this.#writer.call("removeEvents", { below, receivedBefore, limit: most }),
		);
	}
}

/** Calls `remove` with how much it may remove until it removes less, or `limit` is reached; gives the sum. */
async function removeRepeatedly(limit: number, remove: (most: number) => Promise<number>): Promise<number> {
	let removed = 0;
	while (removed < limit) {
		const most = Math.min(limit - removed, MAX_REMOVED);
		const gone = await remove(most);
		removed += gone;
		if (gone < most) break;
	}
	return removed;
}
