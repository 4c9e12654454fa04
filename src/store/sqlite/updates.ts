import type { RangeQuery, SequenceRange, StoredUpdate, UpdateQuery } from "../store.ts";
import type { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";
import { bigint, bindable, blob, integer, nullable, type Row, text } from "./values.ts";

const COLUMNS = `
	c.conversation_id, u.sequence, u.change, u.current, u.previous_sequence, u.received_at, u.summary,
	coalesce(u.unpacked_size, octet_length(u.record)) AS size
`;
const OF_ALL = "updates u CROSS JOIN conversations c ON c.id = u.conversation";
const OF_ONE = `conversations c CROSS JOIN updates u INDEXED BY updates_by_conversation
	ON c.conversation_id = ? AND u.conversation = c.id`;

/** The current record of a conversation, or the one that was current as of a sequence. */
export function getUpdate(
	statements: Statements,
	records: RecordReader,
	conversationId: string,
	asOf: bigint | undefined,
): StoredUpdate | undefined {
	const row =
		asOf === undefined
			? statements
					.prepare(`
						SELECT ${COLUMNS} FROM conversations c JOIN updates u ON u.sequence = c.sequence
						WHERE c.conversation_id = ?
					`)
					.get(conversationId)
			: statements
					.prepare(`
						SELECT ${COLUMNS} FROM ${OF_ONE}
						WHERE u.sequence <= ? AND u.current = 1 ORDER BY u.sequence DESC LIMIT 1
					`)
					.get(conversationId, bindable(asOf));
	return row && updateOf(row, records);
}

/** Updates in order of sequence. */
export function listUpdates(statements: Statements, records: RecordReader, query: UpdateQuery): StoredUpdate[] {
	const { after, conversationId, limit, maxBytes = Number.POSITIVE_INFINITY, withRecords } = query;
	const rows = statements
		.prepare(`
			SELECT ${COLUMNS} FROM ${conversationId === undefined ? OF_ALL : OF_ONE}
			WHERE u.sequence > ? ORDER BY u.sequence LIMIT ?
		`)
		.iterate(...(conversationId === undefined ? [] : [conversationId]), bindable(after), limit);
	const updates: StoredUpdate[] = [];
	let bytes = 0;
	for (const row of rows) {
		if (withRecords) {
			bytes += integer(row.size);
			if (updates.length > 0 && bytes > maxBytes) break;
		}
		updates.push(updateOf(row, withRecords ? records : undefined));
	}
	return updates;
}

/** Which sequences are stored, and what was pruned. */
export function readRange(statements: Statements, { conversationId, afterRemoval }: RangeQuery): SequenceRange {
	const state = statements
		.prepare("SELECT pruned_through, last_removal, (SELECT max(sequence) FROM updates) AS newest FROM store_state")
		.get();
	const prunedOfAll = bigint(state?.pruned_through);
	const newest = nullable(bigint, state?.newest) ?? 0n;
	return {
		newest: newest > prunedOfAll ? newest : prunedOfAll,
		prunedThrough:
			conversationId === undefined && afterRemoval === undefined
				? prunedOfAll
				: prunedThrough(statements, conversationId, afterRemoval ?? -1n),
		lastRemoval: bigint(state?.last_removal),
	};
}

function prunedThrough(statements: Statements, conversationId: string | undefined, afterRemoval: bigint): bigint {
	const row =
		conversationId === undefined
			? statements.prepare("SELECT max(through) AS through FROM pruned WHERE removal > ?").get(afterRemoval)
			: statements
					.prepare("SELECT max(through) AS through FROM pruned WHERE removal > ? AND conversation_id = ?")
					.get(afterRemoval, conversationId);
	return nullable(bigint, row?.through) ?? 0n;
}

function updateOf(row: Row, records: RecordReader | undefined): StoredUpdate {
	const sequence = bigint(row.sequence);
	return {
		conversationId: text(row.conversation_id),
		sequence,
		change: integer(row.change),
		current: row.current === 1n,
		previousSequence: nullable(bigint, row.previous_sequence),
		receivedAt: bigint(row.received_at),
		summary: blob(row.summary),
		record: records?.read(sequence),
	};
}
