import type { LogTable } from "../rows.ts";
import type { PrunePolicy } from "../store.ts";
import { bigint, bindable, boolean, nullable, text } from "../values.ts";
import type { Connections } from "./connections.ts";
import { lockConversations, tryLockHistory } from "./locks.ts";
import {
	type AgeBounds,
	deletedQuery,
	type FindPrunableRequest,
	findPrunable,
	firstReceivedSince,
	IS_CURRENT_OR_BASE,
} from "./prunable.ts";
import type { Query, Session } from "./transaction.ts";

/** Maximum number of entries that one transaction removes, so that it locks few conversations for a short time. */
const MAX_REMOVED = 50;

/** Removes history that a policy no longer keeps, in small transactions. Several processes may do so at the same time. */
export class Pruner {
	readonly #connections: Connections;
	/** Id of the conversation at which the next step begins to search; undefined for the first of all. */
	#next: string | undefined;

	constructor(connections: Connections) {
		this.#connections = connections;
	}

	/**
	 * Removes up to the policy's `limit` of updates and events, and returns their number. Removes fewer when all
	 * conversations have been examined. It also stops early while another process removes history, because one search is
	 * enough.
	 */
	async prune(policy: PrunePolicy): Promise<number> {
		const { limit, updatesPerConversation } = policy;
		const receivedBefore = bindable(policy.receivedBefore ?? -(2n ** 62n));
		const below = await this.#connections.read((session) => firstReceivedSince(session, "updates", receivedBefore));
		let removed = 0;
		const bounds = { below, receivedBefore };
		const [deleted = []] = await this.#connections.read((session) => session.query(deletedQuery({ ...bounds, limit })));
		for (const { conversation_id } of deleted) {
			if (removed >= limit) return removed;
			removed += await this.#removeDeleted(text(conversation_id), { ...bounds, limit: limit - removed });
		}
		const start = this.#next;
		let wrapped = start === undefined;
		while (removed < limit) {
			const maximum = Math.min(limit - removed, MAX_REMOVED);
			const request = { ...bounds, from: this.#next, limit: maximum, updatesPerConversation };
			const found = await this.#removeHistory(request);
			if (found === undefined) break;
			const { next } = found;
			removed += found.removed;
			this.#next = next;
			if (wrapped && (next === undefined || (start !== undefined && next >= start))) break;
			wrapped ||= next === undefined;
		}
		return removed;
	}

	/**
	 * Removes up to `limit` events that were received before a time, and returns their number. Removes fewer when there are
	 * no more.
	 */
	async pruneEvents(receivedBefore: bigint, limit: number): Promise<number> {
		const time = bindable(receivedBefore);
		const below = await this.#connections.read((session) => firstReceivedSince(session, "events", time));
		let removed = 0;
		while (removed < limit) {
			const maximum = Math.min(limit - removed, MAX_REMOVED);
			const gone = await this.#removeEvents(below, time, maximum);
			removed += gone;
			if (gone < maximum) break;
		}
		return removed;
	}

	/**
	 * Removes some updates that are neither the current one of their conversation nor the base of another one.
	 *
	 * @returns the number of updates, and the conversation to go on with; undefined while another process removes history
	 */
	async #removeHistory(
		request: FindPrunableRequest,
	): Promise<{ readonly removed: number; readonly next: string | undefined } | undefined> {
		return await this.#connections.transaction(async (transaction) => {
			const [locked] = await transaction.query(tryLockHistory);
			if (!boolean(locked?.[0]?.taken)) return undefined;
			const { updates, next } = await findPrunable(transaction, request);
			if (updates.length === 0) return { removed: 0, next };
			await transaction.query(lockConversations(updates.map(({ conversationId }) => conversationId)));
			const sequences = updates.map(({ sequence }) => sequence);
			const where = `e.sequence = ANY ($1::bigint[]) AND NOT ${IS_CURRENT_OR_BASE}`;
			const [rows] = await transaction.commit(removeQuery("updates", where, [sequences]));
			return { removed: countOf(rows), next };
		});
	}

	/** Removes the events with the smallest sequences. */
	async #removeEvents(below: bigint, receivedBefore: bigint, limit: number): Promise<number> {
		const found = await this.#connections.read((session) =>
			session.query({
				text: `
					SELECT conversation_id, sequence FROM conversation_updates.events
					WHERE sequence < $1 AND received_at < $2 ORDER BY sequence LIMIT $3
				`,
				values: [below, receivedBefore, limit],
			}),
		);
		const rows = found[0] ?? [];
		if (rows.length === 0) return 0;
		const ids = [...new Set(rows.map(({ conversation_id }) => text(conversation_id)))];
		return await this.#connections.transaction(async (transaction) => {
			await transaction.query(lockConversations(ids));
			const sequences = rows.map(({ sequence }) => bigint(sequence));
			const [removed] = await transaction.commit(
				removeQuery("events", "e.sequence = ANY ($1::bigint[])", [sequences]),
				// A conversation without a record consists of its events, so its activity goes with the last event.
				{
					text: `
						DELETE FROM conversation_updates.activities a WHERE a.conversation_id = ANY ($1::uuid[])
							AND NOT EXISTS (
								SELECT 1 FROM conversation_updates.events e WHERE e.conversation_id = a.conversation_id
							)
							AND NOT EXISTS (
								SELECT 1 FROM conversation_updates.conversations c WHERE c.conversation_id = a.conversation_id
							)
					`,
					values: [ids],
				},
			);
			return countOf(removed);
		});
	}

	/**
	 * Removes a deleted conversation, up to `limit` rows of it: its history and its events, then its current update with the
	 * conversation.
	 */
	async #removeDeleted(conversationId: string, bounds: AgeBounds & { readonly limit: number }): Promise<number> {
		const { limit } = bounds;
		return await this.#connections.transaction(async (transaction) => {
			const [, states] = await transaction.query(
				lockConversations([conversationId]),
				deletedQuery({ ...bounds, conversationId, limit: 1 }),
			);
			const state = states?.[0];
			// Another process has removed the conversation, or it was posted again.
			if (state === undefined) return 0;
			const lastUpdates = [bigint(state.sequence), nullable(bigint, state.base_sequence) ?? bigint(state.sequence)];
			let removed = await remove(transaction, removeNewest("updates", conversationId, lastUpdates, limit));
			removed += await remove(transaction, removeNewest("events", conversationId, [], limit - removed));
			if (removed >= limit) return removed;
			removed += await remove(transaction, removeQuery("updates", "e.sequence = ANY ($1::bigint[])", [lastUpdates]));
			const tables = ["tags", "titles", "activities", "conversations"];
			await transaction.commit(
				...tables.map((table) => ({
					text: `DELETE FROM conversation_updates.${table} WHERE conversation_id = $1`,
					values: [conversationId],
				})),
			);
			return removed;
		});
	}
}

async function remove(session: Session, query: Query): Promise<number> {
	return countOf((await session.query(query))[0]);
}

function countOf(rows: readonly { readonly [column: string]: unknown }[] | undefined): number {
	return Number(bigint(rows?.[0]?.count));
}

/** Returns the query that removes the newest entries of a conversation, so that deltas are removed before their base. */
function removeNewest(log: LogTable, conversationId: string, kept: readonly bigint[], limit: number): Query {
	const where = `e.sequence IN (
		SELECT sequence FROM conversation_updates.${log}
		WHERE conversation_id = $1 AND NOT sequence = ANY ($2::bigint[]) ORDER BY sequence DESC LIMIT $3
	)`;
	return removeQuery(log, where, [conversationId, kept, limit]);
}

/**
 * Returns the query that removes entries `e` of a log, stores in `pruned` how far each conversation was pruned, and
 * returns the `count` of the entries.
 */
function removeQuery(log: LogTable, where: string, values: readonly unknown[]): Query {
	return {
		text: `
			WITH gone AS (
				DELETE FROM conversation_updates.${log} e WHERE ${where} RETURNING conversation_id, sequence
			), removal AS (
				UPDATE conversation_updates.removals
				SET last_removal = last_removal + 1,
					pruned_through = greatest(pruned_through, (SELECT max(sequence) FROM gone))
				WHERE log = '${log}' AND EXISTS (SELECT 1 FROM gone) RETURNING last_removal
			), remembered AS (
				INSERT INTO conversation_updates.pruned AS p (log, conversation_id, through, removal)
				SELECT '${log}', g.conversation_id, max(g.sequence), r.last_removal FROM gone g, removal r
				GROUP BY g.conversation_id, r.last_removal
				ON CONFLICT (log, conversation_id) DO UPDATE SET
					through = greatest(p.through, excluded.through), removal = excluded.removal
			)
			SELECT count(*) AS count FROM gone
		`,
		values,
	};
}
