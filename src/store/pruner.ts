import { randomUUID } from "node:crypto";
import { type Claims, claimFor } from "./claims.ts";
import type { Condition } from "./condition.ts";
import type { ConversationQuery, StoredConversation } from "./conversation-lists.ts";
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

/** Maximum number of entries that one transaction removes, so that appends do not wait long. */
const MAX_REMOVED = 50;
/** Milliseconds for which a process claims the removal of history. */
const CLAIM = 60_000;

/** The operations by which the pruner works, each in a transaction of its own: see remove.ts. */
export interface Removals extends Claims {
	readonly firstReceivedSince: (query: { readonly log: LogTable; readonly time: bigint }) => Promise<bigint>;
	readonly findDeleted: (bounds: RemovalBounds) => Promise<readonly string[]>;
	readonly findPrunable: (query: PrunableQuery) => Promise<PrunableUpdates>;
	readonly listConversations: (query: ConversationQuery) => Promise<readonly StoredConversation[]>;
	readonly removeConversation: (request: RemovedConversation) => Promise<number>;
	readonly removeUpdates: (updates: Pick<PrunableUpdates, "updates">) => Promise<number>;
	readonly removeEvents: (bounds: RemovalBounds) => Promise<number>;
}

/** Removes the history that a policy no longer keeps, in small transactions. */
export class Pruner {
	readonly #calls: Removals;
	readonly #holder = randomUUID();
	/** The conversation at which the next search begins; undefined for the first of all. */
	#next: PrunableUpdates["next"];

	constructor(calls: Removals) {
		this.#calls = calls;
	}

	/** Does what `Store.prune` says. */
	async prune({ limit, updatesPerConversation, receivedBefore: time }: PrunePolicy): Promise<number> {
		const receivedBefore = bindable(time ?? -(2n ** 62n));
		const bounds = {
			below: await this.#calls.firstReceivedSince({ log: "updates", time: receivedBefore }),
			receivedBefore,
		};
		const deleted = await this.#calls.findDeleted({ ...bounds, limit });
		const removed = await this.#removeAll(deleted, { deletion: bounds }, limit);
		if (removed >= limit || !(await this.#claim(CLAIM))) return removed;
		try {
			return removed + (await this.#removeHistory(bounds, limit - removed, updatesPerConversation));
		} finally {
			await this.#claim(0);
		}
	}

	/** Returns the number of removed updates. */
	async #removeHistory(bounds: AgeBounds, limit: number, updatesPerConversation: number | undefined): Promise<number> {
		const start = this.#next;
		let wrapped = start === undefined;
		let removed = 0;
		while (removed < limit) {
			const batch = Math.min(limit - removed, MAX_REMOVED);
			const query = { ...bounds, from: this.#next, limit: batch, updatesPerConversation };
			const { updates, next } = await this.#calls.findPrunable(query);
			if (updates.length > 0) removed += await this.#calls.removeUpdates({ updates });
			this.#next = next;
			if (wrapped && (next === undefined || (start !== undefined && next >= start))) break;
			wrapped ||= next === undefined;
		}
		return removed;
	}

	/** Claims the removal of history, or ends the claim. Returns whether this process has it. */
	#claim(milliseconds: number): Promise<boolean> {
		return claimFor(this.#calls, "removal of history", this.#holder, milliseconds);
	}

	/** Does what `Store.pruneConversations` says. */
	async pruneConversations(conditions: readonly Condition[], limit: number): Promise<number> {
		const found = await this.#calls.listConversations({ conditions, limit, withRecords: false });
		const ids = found.map(({ conversationId }) => conversationId);
		return await this.#removeAll(ids, { meets: conditions }, limit);
	}

	/** Does what `Store.pruneEvents` says. */
	async pruneEvents(time: bigint, limit: number): Promise<number> {
		const receivedBefore = bindable(time);
		const bounds = {
			below: await this.#calls.firstReceivedSince({ log: "events", time: receivedBefore }),
			receivedBefore,
		};
		return await this.#inBatches(limit, (batch) => this.#calls.removeEvents({ ...bounds, limit: batch }));
	}

	/** Removes conversations that are due, until `limit` is reached. Returns the number of removed entries. */
	async #removeAll(ids: readonly string[], due: Due, limit: number): Promise<number> {
		let removed = 0;
		for (const id of ids) {
			removed += await this.#inBatches(limit - removed, (batch) =>
				this.#calls.removeConversation({ conversationId: id, due, limit: batch }),
			);
			if (removed >= limit) break;
		}
		return removed;
	}

	/** Removes batches until one is smaller than its limit, or `limit` is reached. Returns the total number. */
	async #inBatches(limit: number, remove: (batch: number) => Promise<number>): Promise<number> {
		let removed = 0;
		while (removed < limit) {
			const batch = Math.min(limit - removed, MAX_REMOVED);
			const gone = await remove(batch);
			removed += gone;
			if (gone < batch) break;
		}
		return removed;
	}
}
