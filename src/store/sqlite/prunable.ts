import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import type { AgeBounds, PrunableQuery } from "../pruner.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import type { Statements } from "./statements.ts";

const DELETING = ConversationExecutionStatus.DELETING;
/** Maximum number of conversations that one call searches, so that other reads do not wait long. */
const MAX_CONVERSATIONS = 1_000;

/** SQL that tests whether the record of update `u` is the base of a delta, which needs it. */
export const IS_BASE = `EXISTS (SELECT 1 FROM updates d INDEXED BY updates_by_base WHERE d.base_sequence = u.sequence)`;

export interface Prunable {
	readonly sequences: readonly bigint[];
	/** Row id of the conversation to go on with; undefined after the last one. */
	readonly next: bigint | undefined;
}

/**
 * Finds updates that are too old, or exceed the number to keep. It finds the base of deltas only after all these deltas
 * have been removed.
 */
export function findPrunable(statements: Statements, query: PrunableQuery<bigint>): Prunable {
	const { from = 0n, limit, below, receivedBefore, updatesPerConversation } = query;
	const last = statements
		.prepare("SELECT max(id) AS id FROM (SELECT id FROM heads WHERE id >= ? ORDER BY id LIMIT ?)")
		.get(from, MAX_CONVERSATIONS);
	const through = nullable(bigint, last?.id);
	if (through === undefined) return { sequences: [], next: undefined };
	const rows = statements
		.prepare(`
			WITH looked_at (id, current, surplus) AS MATERIALIZED (
				SELECT c.id, c.sequence, ${surplus(updatesPerConversation)}
				FROM heads c WHERE c.id >= ? AND c.id <= ? ORDER BY c.id
			)
			SELECT l.id, u.sequence FROM looked_at l CROSS JOIN updates u INDEXED BY updates_by_conversation
			WHERE u.conversation = l.id AND u.sequence < max(?, l.surplus + 1) AND u.sequence <> l.current
				AND (u.sequence <= l.surplus OR (u.sequence < ? AND u.received_at < ?))
				AND NOT ${IS_BASE}
			ORDER BY l.id, u.sequence LIMIT ?
		`)
		.all(from, through, below, below, receivedBefore, limit);
	const lastRow = rows.at(-1);
	return {
		sequences: rows.map(({ sequence }) => bigint(sequence)),
		// A full result may end inside a conversation, which the next call then searches again.
		next: rows.length === limit && lastRow !== undefined ? bigint(lastRow.id) : through + 1n,
	};
}

/** Returns SQL for the newest update of conversation `c` that exceeds the number of updates to keep; 0 for none. */
function surplus(updatesPerConversation: number | undefined): string {
	if (updatesPerConversation === undefined) return "0";
	// The current update is always kept and counts, so one fewer of the others is kept.
	return `coalesce((
		SELECT s.sequence FROM updates s INDEXED BY updates_by_conversation
		WHERE s.conversation = c.id AND s.sequence <> c.sequence
		ORDER BY s.sequence DESC LIMIT 1 OFFSET ${Math.max(0, Math.trunc(updatesPerConversation) - 1)}
	), 0)`;
}

/** A conversation whose deletion is old enough to remove it. */
export interface Deleted {
	readonly id: bigint;
	readonly conversationId: string;
	/** Sequence of the current update. */
	readonly sequence: bigint;
	/** Sequence of the base of that; undefined when it has none. */
	readonly base: bigint | undefined;
}

/** Returns a conversation if its deletion is within the bounds. */
export function getDeleted(
	statements: Statements,
	conversationId: string,
	{ below, receivedBefore }: AgeBounds,
): Deleted | undefined {
	const row = statements
		.prepare(`
			SELECT c.id, c.conversation_id, c.sequence, u.base_sequence
			FROM heads c JOIN updates u ON u.sequence = c.sequence
			WHERE c.conversation_id = ? AND c.status = ${DELETING} AND c.sequence < ? AND u.received_at < ?
		`)
		.get(conversationId, below, receivedBefore);
	return row && deletedFrom(row);
}

function deletedFrom(row: Row): Deleted {
	return {
		id: bigint(row.id),
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		base: nullable(bigint, row.base_sequence),
	};
}
