import type { DatabaseSync } from "node:sqlite";
import { asNumbers } from "./database.ts";
import type { RemoveExpiredRequest } from "./messages.ts";
import { integer } from "./values.ts";

/** Removals, each to be called inside a transaction that the caller holds; they return how many updates went. */
export interface Remover {
	/**
	 * Removes updates that are neither a conversation's current one nor listed. Sequences that are gone already are passed
	 * over.
	 */
	history(sequences: readonly number[]): number;
	/** Removes conversations whose deletion is old enough and listed, the history of each before its current update. */
	expired(request: RemoveExpiredRequest): number;
}

/** Prepares the removals. They also move the mark up to which updates may have been removed. */
export function remover(database: DatabaseSync): Remover {
	const removeHistory = database.prepare(`
		DELETE FROM updates WHERE sequence = ?
			AND NOT EXISTS (SELECT 1 FROM heads h WHERE h.id = updates.conversation AND h.sequence = updates.sequence)
			AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = updates.conversation AND c.sequence = updates.sequence)
	`);
	const findExpired = database.prepare(
		`
		SELECT c.id, c.sequence FROM conversations c INDEXED BY conversations_by_status
		JOIN heads h ON h.id = c.id AND h.sequence = c.sequence JOIN updates u ON u.sequence = c.sequence
		WHERE c.status = 'deleting' AND c.sequence < ? AND u.received_at < ?
		ORDER BY c.sequence LIMIT ?
	`,
		asNumbers,
	);
	const historyOf = database.prepare(
		`
		SELECT sequence FROM updates INDEXED BY updates_by_conversation
		WHERE conversation = ? AND sequence <> ? ORDER BY sequence LIMIT ?
	`,
		asNumbers,
	);
	const removeUpdate = database.prepare("DELETE FROM updates WHERE sequence = ?");
	const removeTags = database.prepare("DELETE FROM tags WHERE conversation = ?");
	const removeTitle = database.prepare("DELETE FROM titles WHERE rowid = ?");
	const removeConversation = database.prepare("DELETE FROM conversations WHERE id = ?");
	const removeHead = database.prepare("DELETE FROM heads WHERE id = ?");
	const mark = database.prepare("UPDATE store_state SET pruned_through = max(pruned_through, ?)");

	function history(sequences: readonly number[]): number {
		let removed = 0;
		let greatest = 0;
		for (const sequence of sequences) {
			if (removeHistory.run(sequence).changes === 0n) continue;
			removed += 1;
			greatest = Math.max(greatest, sequence);
		}
		if (removed > 0) mark.run(greatest);
		return removed;
	}

	function expired({ below, receivedBefore, limit }: RemoveExpiredRequest): number {
		let removed = 0;
		for (const row of findExpired.all(below, receivedBefore, limit)) {
			const id = integer(row.id);
			const current = integer(row.sequence);
			const rest = historyOf.all(id, current, limit - removed).map((update) => integer(update.sequence));
			removed += history(rest);
			if (removed >= limit) break;
			removeUpdate.run(current);
			removeTags.run(id);
			removeTitle.run(id);
			removeConversation.run(id);
			removeHead.run(id);
			mark.run(current);
			removed += 1;
			if (removed >= limit) break;
		}
		return removed;
	}

	return { history, expired };
}
