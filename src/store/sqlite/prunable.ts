import { bigint, bindable, nullable } from "../values.ts";
import type { FindPrunableRequest, Prunable } from "./calls.ts";
import type { Statements } from "./statements.ts";

/** Maximum number of conversations that one call searches, so that other reads do not wait long. */
const MAX_CONVERSATIONS = 1_000;

/** SQL that tests whether the record of update `u` is the base of a delta, which needs it. */
export const IS_BASE = `EXISTS (SELECT 1 FROM updates d INDEXED BY updates_by_base WHERE d.base_sequence = u.sequence)`;

/**
 * Finds updates that are too old, or exceed the number to keep, in the conversations after a given one. It returns the
 * base of deltas only after all these deltas have been removed.
 */
export function findPrunable(statements: Statements, request: FindPrunableRequest): Prunable {
	const { after, limit, below, receivedBefore, updatesPerConversation } = request;
	const last = statements
		.prepare("SELECT max(id) AS id FROM (SELECT id FROM conversations WHERE id > ? ORDER BY id LIMIT ?)")
		.get(after, MAX_CONVERSATIONS);
	const through = nullable(bigint, last?.id);
	if (through === undefined) return { sequences: [], next: undefined };
	const rows = statements
		.prepare(`
			WITH looked_at (id, current, surplus) AS MATERIALIZED (
				SELECT c.id, c.sequence, ${surplus(updatesPerConversation)}
				FROM conversations c WHERE c.id > ? AND c.id <= ? ORDER BY c.id
			)
			SELECT l.id, u.sequence FROM looked_at l CROSS JOIN updates u INDEXED BY updates_by_conversation
			WHERE u.conversation = l.id AND u.sequence < max(?, l.surplus + 1) AND u.sequence <> l.current
				AND (u.sequence <= l.surplus OR (u.sequence < ? AND u.received_at < ?))
				AND NOT ${IS_BASE}
			ORDER BY l.id, u.sequence LIMIT ?
		`)
		.all(after, through, below, below, bindable(receivedBefore), limit);
	const lastRow = rows.at(-1);
	return {
		sequences: rows.map(({ sequence }) => bigint(sequence)),
		// A full result may end inside a conversation, which the next call then searches again.
		next: rows.length === limit && lastRow !== undefined ? bigint(lastRow.id) - 1n : through,
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
