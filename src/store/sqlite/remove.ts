import type { DatabaseSync } from "node:sqlite";
import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import type { RemoveDeletedRequest } from "./calls.ts";
import { Statements } from "./statements.ts";
import { bigint, text } from "./values.ts";

const DELETING = ConversationExecutionStatus.DELETING;

/** Removes updates, inside transactions that the caller holds, and remembers what was pruned of which conversation. */
export class Remover {
	readonly #statements: Statements;

	constructor(database: DatabaseSync) {
		this.#statements = new Statements(database);
	}

	/**
	 * Removes updates that are not a conversation's current one. Sequences that are gone already are passed over.
	 *
	 * @returns how many updates were removed
	 */
	updates(sequences: readonly bigint[]): number {
		const find = this.#statements.prepare(`
			SELECT c.conversation_id FROM updates u JOIN conversations c ON c.id = u.conversation
			WHERE u.sequence = ? AND c.sequence <> u.sequence
		`);
		let removed = 0;
		for (const sequence of sequences) {
			const row = find.get(sequence);
			if (row === undefined) continue;
			if (removed === 0) this.#beginRemoval();
			this.#removeUpdate(text(row.conversation_id), sequence);
			removed += 1;
		}
		return removed;
	}

	/**
	 * Removes conversations whose deletion is old enough: the history of each, then its current update with the
	 * conversation.
	 *
	 * @returns how many updates were removed
	 */
	deleted({ below, receivedBefore, limit }: RemoveDeletedRequest): number {
		const conversations = this.#statements
			.prepare(`
				SELECT c.id, c.conversation_id, c.sequence
				FROM conversations c INDEXED BY conversations_by_status JOIN updates u ON u.sequence = c.sequence
				WHERE c.status = ${DELETING} AND c.sequence < ? AND u.received_at < ? ORDER BY c.sequence LIMIT ?
			`)
			.all(below, receivedBefore, limit);
		const historyOf = this.#statements.prepare(`
			SELECT sequence FROM updates INDEXED BY updates_by_conversation
			WHERE conversation = ? AND sequence <> ? ORDER BY sequence LIMIT ?
		`);
		let removed = 0;
		for (const row of conversations) {
			const [id, current] = [bigint(row.id), bigint(row.sequence)];
			removed += this.updates(historyOf.all(id, current, limit - removed).map(({ sequence }) => bigint(sequence)));
			if (removed >= limit) break;
			this.#beginRemoval();
			this.#removeUpdate(text(row.conversation_id), current);
			this.#statements.prepare("DELETE FROM tags WHERE conversation = ?").run(id);
			this.#statements.prepare("DELETE FROM titles WHERE rowid = ?").run(id);
			this.#statements.prepare("DELETE FROM conversations WHERE id = ?").run(id);
			removed += 1;
			if (removed >= limit) break;
		}
		return removed;
	}

	#beginRemoval(): void {
		this.#statements.prepare("UPDATE store_state SET last_removal = last_removal + 1").run();
	}

	#removeUpdate(conversationId: string, sequence: bigint): void {
		this.#statements.prepare("DELETE FROM updates WHERE sequence = ?").run(sequence);
		this.#statements.prepare("UPDATE store_state SET pruned_through = max(pruned_through, ?)").run(sequence);
		this.#statements
			.prepare(`
				INSERT INTO pruned SELECT ?, ?, last_removal FROM store_state WHERE true
				ON CONFLICT DO UPDATE SET through = max(through, excluded.through), removal = excluded.removal
			`)
			.run(conversationId, sequence);
	}
}
