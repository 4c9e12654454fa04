import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import type { Condition } from "./condition.ts";
import type { LogTable } from "./sequence-log.ts";
import type { Session } from "./session.ts";
import { bindable, text } from "./values.ts";

export interface PrunePolicy {
	/** Remove history that was received before this time (microseconds since the Unix epoch). */
	readonly receivedBefore?: bigint | undefined;
	/** Keep at most this many updates of each conversation. */
	readonly updatesPerConversation?: number | undefined;
	/** Maximum number of updates and events to remove. The end of a deleted conversation may exceed it by 1. */
	readonly limit: number;
}

/** Selects entries with a sequence below `below` that were received before a time. */
export interface AgeBounds {
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

/** Selects updates that a policy no longer keeps, one conversation after the other. */
export interface PrunableQuery<Conversation> extends RemovalBounds {
	/** The first conversation to examine; undefined for the first of all. */
	readonly from: Conversation | undefined;
	readonly updatesPerConversation: number | undefined;
}

/**
 * What an engine removes, each time in one transaction. Conversations have an order, by which a search goes on.
 */
export interface PruningEngine<Conversation extends bigint | string> {
	/** Maximum number of entries that one transaction removes, so that appends do not wait long. */
	readonly maxRemoved: number;
	/**
	 * Returns a sequence such that the entries of a log below it were received before a time (microseconds since the Unix
	 * epoch), and the others at that time or later.
	 */
	firstReceivedSince(log: LogTable, time: bigint): Promise<bigint>;
	/** Returns the ids of conversations whose deletion is within the bounds. */
	findDeleted(bounds: RemovalBounds): Promise<readonly string[]>;
	/** Returns the ids of at most `limit` conversations that meet all conditions. */
	findMeeting(conditions: readonly Condition[], limit: number): Promise<readonly string[]>;
	/**
	 * Removes at most `limit` entries of a conversation if it is still due: its history and its events, then its current
	 * update with the base of that, which may exceed the limit by one, and the conversation itself.
	 */
	removeConversation(conversationId: string, due: Due, limit: number): Promise<number>;
	/**
	 * Removes updates that are neither current nor the base of another one.
	 *
	 * @returns their number, and the conversation to go on with, undefined after the last one; undefined while another
	 *   process removes history
	 */
	removeHistory(
		query: PrunableQuery<Conversation>,
	): Promise<{ readonly removed: number; readonly next: Conversation | undefined } | undefined>;
	/** Removes events, and the activity of a conversation without a record with its last event. */
	removeEvents(bounds: RemovalBounds): Promise<number>;
}

/** Removes the history that a policy no longer keeps, in small transactions. */
export class Pruner<Conversation extends bigint | string> {
	readonly #engine: PruningEngine<Conversation>;
	/** The conversation at which the next search begins; undefined for the first of all. */
	#next: Conversation | undefined;

	constructor(engine: PruningEngine<Conversation>) {
		this.#engine = engine;
	}

	/** Does what `Store.prune` says. */
	async prune({ limit, updatesPerConversation, receivedBefore: time }: PrunePolicy): Promise<number> {
		const receivedBefore = bindable(time ?? -(2n ** 62n));
		const bounds = { below: await this.#engine.firstReceivedSince("updates", receivedBefore), receivedBefore };
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
		const bounds = { below: await this.#engine.firstReceivedSince("events", receivedBefore), receivedBefore };
		return await this.#inBatches(limit, (batch) => this.#engine.removeEvents({ ...bounds, limit: batch }));
	}

	/** Removes conversations that are due, until `limit` is reached. Returns the number of removed entries. */
	async #removeAll(ids: readonly string[], due: Due, limit: number): Promise<number> {
		let removed = 0;
		for (const id of ids) {
			removed += await this.#inBatches(limit - removed, (batch) => this.#engine.removeConversation(id, due, batch));
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

/** Returns the ids of conversations whose deletion is within the bounds, oldest first. */
export async function findDeleted(
	{ all, dialect: { schema, isCurrent } }: Session,
	{ below, receivedBefore, limit }: RemovalBounds,
): Promise<string[]> {
	const rows = await all(
		`SELECT c.conversation_id FROM ${schema}conversations c JOIN ${schema}updates u ON ${isCurrent("c")}
		WHERE c.status = ${ConversationExecutionStatus.DELETING} AND c.sequence < ? AND u.received_at < ?
		ORDER BY c.sequence LIMIT ?`,
		below,
		receivedBefore,
		limit,
	);
	return rows.map(({ conversation_id }) => text(conversation_id));
}
