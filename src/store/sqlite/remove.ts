import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import type { LogTable } from "../rows.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import type { RemoveRequest } from "./calls.ts";
import { IS_BASE } from "./prunable.ts";
import type { Statements } from "./statements.ts";

const DELETING = ConversationExecutionStatus.DELETING;

/**
 * Removes updates and events, inside transactions that the caller holds, and remembers what was pruned of which
 * conversation.
 */

/**
 * Removes updates that are neither a conversation's current one nor the base of another one. Sequences that are gone
 * already are passed over.
 *
 * @returns how many updates were removed
 */
export function removeUpdates(statements: Statements, sequences: readonly bigint[]): number {
	const find = statements.prepare(`
		SELECT c.conversation_id, u.sequence FROM updates u JOIN conversations c ON c.id = u.conversation
		WHERE u.sequence = ? AND c.sequence <> u.sequence AND NOT ${IS_BASE}
	`);
	return remove(
		statements,
		"updates",
		sequences.map((sequence) => find.get(sequence)).filter((row) => row !== undefined),
	);
}

/**
 * Removes the events with the smallest sequences.
 *
 * @returns how many events were removed
 */
export function removeEvents(statements: Statements, { below, receivedBefore, limit }: RemoveRequest): number {
	const rows = statements
		.prepare(`
			SELECT a.conversation_id, e.sequence FROM events e CROSS JOIN activities a ON a.id = e.activity
			WHERE e.sequence < ? AND e.received_at < ? ORDER BY e.sequence LIMIT ?
		`)
		.all(below, receivedBefore, limit);
	const removed = remove(statements, "events", rows);
	// What is left of a conversation without a record are its events.
	const forget = statements.prepare(`
		DELETE FROM activities AS a WHERE conversation_id = ?
			AND NOT EXISTS (SELECT 1 FROM events e WHERE e.activity = a.id)
			AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.conversation_id = a.conversation_id)
	`);
	for (const id of new Set(rows.map(({ conversation_id }) => text(conversation_id)))) forget.run(id);
	return removed;
}

/**
 * Removes conversations whose deletion is old enough: the history of each and its events, then its current update
 * with the conversation.
 *
 * @returns how many updates and events were removed
 */
export function removeDeleted(statements: Statements, { below, receivedBefore, limit }: RemoveRequest): number {
	const conversations = statements
		.prepare(`
			SELECT c.id, c.conversation_id, c.sequence, u.base_sequence
			FROM conversations c INDEXED BY conversations_by_status JOIN updates u ON u.sequence = c.sequence
			WHERE c.status = ${DELETING} AND c.sequence < ? AND u.received_at < ? ORDER BY c.sequence LIMIT ?
		`)
		.all(below, receivedBefore, limit);
	// The newest first, so that deltas go before their base.
	const historyOf = statements.prepare(`
		SELECT sequence FROM updates INDEXED BY updates_by_conversation
		WHERE conversation = ? AND sequence <> ? AND sequence IS NOT ? ORDER BY sequence DESC LIMIT ?
	`);
	const eventsOf = statements.prepare(`
		SELECT e.sequence FROM activities a CROSS JOIN events e INDEXED BY events_by_activity ON e.activity = a.id
		WHERE a.conversation_id = ? ORDER BY e.sequence LIMIT ?
	`);
	let removed = 0;
	for (const row of conversations) {
		const conversationId = text(row.conversation_id);
		const [id, current, base] = [bigint(row.id), bigint(row.sequence), nullable(bigint, row.base_sequence)];
		const ofThis = (rows: readonly Row[]) =>
			rows.map(({ sequence }) => ({ conversation_id: conversationId, sequence: bigint(sequence) }));
		removed += remove(statements, "updates", ofThis(historyOf.all(id, current, base ?? null, limit - removed)));
		removed += remove(statements, "events", ofThis(eventsOf.all(conversationId, limit - removed)));
		if (removed >= limit) break;
		const last = base === undefined ? [current] : [current, base];
		removed += remove(
			statements,
			"updates",
			last.map((sequence) => ({ conversation_id: conversationId, sequence })),
		);
		statements.prepare("DELETE FROM tags WHERE conversation = ?").run(id);
		statements.prepare("DELETE FROM titles WHERE rowid = ?").run(id);
		statements.prepare("DELETE FROM activities WHERE conversation_id = ?").run(conversationId);
		statements.prepare("DELETE FROM conversations WHERE id = ?").run(id);
		if (removed >= limit) break;
	}
	return removed;
}

/** Removes rows of a log: each has the `conversation_id` and the `sequence`. */
function remove(statements: Statements, log: LogTable, rows: readonly Row[]): number {
	if (rows.length === 0) return 0;
	statements.prepare("UPDATE logs SET last_removal = last_removal + 1 WHERE log = ?").run(log);
	const through = statements.prepare("UPDATE logs SET pruned_through = max(pruned_through, ?) WHERE log = ?");
	const prunedOf = statements.prepare(`
		INSERT INTO pruned SELECT log, ?, ?, last_removal FROM logs WHERE log = ?
		ON CONFLICT DO UPDATE SET through = max(through, excluded.through), removal = excluded.removal
	`);
	for (const row of rows) {
		const sequence = bigint(row.sequence);
		statements.prepare(`DELETE FROM ${log} WHERE sequence = ?`).run(sequence);
		through.run(sequence, log);
		prunedOf.run(text(row.conversation_id), sequence, log);
	}
	return rows.length;
}
