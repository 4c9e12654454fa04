import type { Condition } from "./condition.ts";
import type { LogTable } from "./sequence-log.ts";
import { bindable } from "./values.ts";

export interface PrunePolicy {
	/** Remove history that was received before this time (microseconds since the Unix epoch). */
	readonly receivedBefore?: bigint | undefined;
	/** Keep at most this many updates of each conversation. */
	readonly updatesPerConversation?: number | undefined;
	/** Maximum number of updates and events to remove. The end of a deleted conversation may exceed it by 1. */
	readonly limit: number;
}

/** Selects entries with a sequence below `below` that were received before a time. */
interface AgeBounds {
	readonly below: bigint;
	/** Microseconds since the Unix epoch. */
	readonly receivedBefore: bigint;
}

/** Selects entries, oldest first. */
export interface RemovalBounds extends AgeBounds {
	/** Maximum number of entries. */
	readonly limit: number;
}

/** When a conversation is removed as a whole: when its deletion is within bounds, or when it meets all conditions. */
export type Due = { readonly deletion: AgeBounds } | { readonly meets: readonly Condition[] };

/** Asks to remove at most `limit` entries of a conversation. */
export interface RemovedConversation {
	readonly conversationId: string;
	readonly due: Due;
	readonly limit: number;
}

/** Selects updates that a policy no longer keeps, one conversation after the other. */
export interface PrunableQuery extends RemovalBounds {
	/** The first conversation to examine, in the order of the ids; undefined for the first of all. */
	readonly from: string | undefined;
	readonly updatesPerConversation: number | undefined;
}

/** Updates that a policy no longer keeps. */
export interface PrunableUpdates {
	readonly updates: readonly { readonly conversationId: string; readonly sequence: bigint }[];
	/** The conversation to go on with; undefined after the last one. */
	readonly next: string | undefined;
}

/** How an engine runs what removes. Each removal is one transaction. */
export interface PruningEngine {
	/** Maximum number of entries that one transaction removes, so that appends do not wait long. */
	readonly maxRemoved: number;
	/** See remove.ts, as for the other removals. */
	firstReceivedSince(query: { readonly log: LogTable; readonly time: bigint }): Promise<bigint>;
	findDeleted(bounds: RemovalBounds): Promise<readonly string[]>;
	/** Returns the ids of at most `limit` conversations that meet all conditions. */
	findMeeting(conditions: readonly Condition[], limit: number): Promise<readonly string[]>;
	removeConversation(request: RemovedConversation): Promise<number>;
	removeEvents(bounds: RemovalBounds): Promise<number>;
	/**
	 * Finds prunable updates, and removes them.
	 *
	 * @returns their number, and the conversation to go on with; undefined while another process removes history
	 */
	removeHistory(
		query: PrunableQuery,
	): Promise<{ readonly removed: number; readonly next: PrunableUpdates["next"] } | undefined>;
}

/** Removes the history that a policy no longer keeps, in small transactions. */
export class Pruner {
	readonly #engine: PruningEngine;
	/** The conversation at which the next search begins; undefined for the first of all. */
	#next: PrunableUpdates["next"];

	constructor(engine: PruningEngine) {
		this.#engine = engine;
	}

	/** Does what `Store.prune` says. */
	async prune({ limit, updatesPerConversation, receivedBefore: time }: PrunePolicy): Promise<number> {
		const receivedBefore = bindable(time ?? -(2n ** 62n));
		const bounds = {
			below: await this.#engine.firstReceivedSince({ log: "updates", time: receivedBefore }),
			receivedBefore,
		};
		const deleted = await this.#engine.findDeleted({ ...bounds, limit });
		let removed = await this.#removeAll(deleted, { deletion: bounds }, limit);
		if (removed >= limit) return removed;
		const start = this.#next;
		let wrapped = start === undefined;
		while (removed < limit) {
			const batch = Math.min(limit - removed, this.#engine.maxRemoved);
			const query = { ...bounds, from: this.#next, limit: batch, updatesPerConversation };
			const found = await this.#engine.removeHistory(query);
			if (found === undefined) break;
			const { next } = found;
			removed += found.removed;
			this.#next = next;
			if (wrapped && (next === undefined || (start !== undefined && next >= start))) break;
			wrapped ||= next === undefined;
		}
		return removed;
	}

	/** Does what `Store.pruneConversations` says. */
	async pruneConversations(conditions: readonly Condition[], limit: number): Promise<number> {
		const found = await this.#engine.findMeeting(conditions, limit);
		return await this.#removeAll(found, { meets: conditions }, limit);
	}

	/** Does what `Store.pruneEvents` says. */
	async pruneEvents(time: bigint, limit: number): Promise<number> {
		const receivedBefore = bindable(time);
		const bounds = {
			below: await this.#engine.firstReceivedSince({ log: "events", time: receivedBefore }),
			receivedBefore,
		};
		return await this.#inBatches(limit, (batch) => this.#engine.removeEvents({ ...bounds, limit: batch }));
	}

	/** Removes conversations that are due, until `limit` is reached. Returns the number of removed entries. */
	async #removeAll(ids: readonly string[], due: Due, limit: number): Promise<number> {
		let removed = 0;
		for (const id of ids) {
			removed += await this.#inBatches(limit - removed, (batch) =>
				this.#engine.removeConversation({ conversationId: id, due, limit: batch }),
			);
			if (removed >= limit) break;
		}
		return removed;
	}

	/** Removes batches until one is smaller than its limit, or `limit` is reached. Returns the total number. */
	async #inBatches(limit: number, remove: (batch: number) => Promise<number>): Promise<number> {
		let removed = 0;
		while (removed < limit) {
			const batch = Math.min(limit - removed, this.#engine.maxRemoved);
			const gone = await remove(batch);
			removed += gone;
			if (gone < batch) break;
		}
		return removed;
	}
}
