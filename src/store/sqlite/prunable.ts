import type { FindPrunableRequest, Prunable } from "./messages.ts";
import { columnsOf, type Statements } from "./statements.ts";
import { bindable, integer } from "./values.ts";

/** Conversations that one request looks at, so that other reads need not wait long. */
const conversationsPerRequest = 1_000;

/**
 * Finds the first sequence that was not received before a time, by bisection: sequences are given out in order of
 * receipt, so this needs no index on the time.
 */
export function cutoff(statements: Statements, receivedBefore: bigint): number {
	const at = statements.numbers(`
		SELECT sequence, received_at < ? FROM updates WHERE sequence >= ? ORDER BY sequence LIMIT 1
	`);
	const [newest] = columnsOf(statements.numbers("SELECT coalesce(max(sequence), 0) FROM updates").get());
	let low = 1;
	let high = integer(newest) + 1;
	while (low < high) {
		const middle = Math.floor((low + high) / 2);
		const [sequence, before] = columnsOf(at.get(bindable(receivedBefore), middle));
		if (before === 1) low = integer(sequence) + 1;
		else high = middle;
	}
	return low;
}

/** Finds history that is too old or too much, among the conversations that follow a given one. */
export function findPrunable(statements: Statements, request: FindPrunableRequest): Prunable {
	const { after, limit, below, receivedBefore, updatesPerConversation } = request;
	const [through] = columnsOf(
		statements
			.numbers("SELECT max(id) FROM (SELECT id FROM heads WHERE id > ? ORDER BY id LIMIT ?)")
			.get(after, conversationsPerRequest),
	);
	if (through === null) return { sequences: [], next: undefined };
	const rows = statements
		.numbers(`
			WITH looked_at (id, current, listed, surplus) AS MATERIALIZED (
				SELECT h.id, h.sequence, coalesce(c.sequence, h.sequence), ${surplus(updatesPerConversation)}
				FROM heads h LEFT JOIN conversations c ON c.id = h.id WHERE h.id > ? AND h.id <= ? ORDER BY h.id
			)
			SELECT l.id, u.sequence FROM looked_at l CROSS JOIN updates u INDEXED BY updates_by_conversation
			WHERE u.conversation = l.id AND u.sequence < max(?, l.surplus + 1) AND u.sequence NOT IN (l.current, l.listed)
				AND (u.sequence <= l.surplus OR (u.sequence < ? AND u.received_at < ?))
			ORDER BY l.id, u.sequence LIMIT ?
		`)
		.all(after, integer(through), below, below, bindable(receivedBefore), limit)
		.map((row) => columnsOf(row).map(integer));
	const sequences = rows.flatMap(([, sequence]) => (sequence === undefined ? [] : [sequence]));
	const last = rows.at(-1)?.[0];
	// A full answer may end inside a conversation, which is then looked at once more.
	return { sequences, next: rows.length === limit && last !== undefined ? last - 1 : integer(through) };
}

/** SQL for the newest update of conversation `h` that is one too many beside those that are kept; 0 for none. */
function surplus(updatesPerConversation: number | undefined): string {
	if (updatesPerConversation === undefined) return "0";
	// The current update always stays, so one less of the others may.
	return `coalesce((
		SELECT s.sequence FROM updates s INDEXED BY updates_by_conversation
		WHERE s.conversation = h.id AND s.sequence <> h.sequence
		ORDER BY s.sequence DESC LIMIT 1 OFFSET ${Math.max(0, Math.trunc(updatesPerConversation) - 1)}
	), 0)`;
}
