import type { Answer } from "../../threads/messages.ts";
import type { SequenceRange, UpdateQuery } from "../store.ts";
import { uuidBytes, uuidText } from "../uuid.ts";
import type { GetRequest, UpdateAnswer } from "./messages.ts";
import { loadRecord, recordSize } from "./records.ts";
import { columnsOf, type Statements } from "./statements.ts";
import { bigint, bindable, blob, changeOf, nullable } from "./values.ts";

const ofAll = "updates u CROSS JOIN heads h ON h.id = u.conversation";
const ofOne = `heads h CROSS JOIN updates u INDEXED BY updates_by_conversation
	ON h.conversation_id = ?3 AND u.conversation = h.id`;
const columns = "h.conversation_id, u.sequence, u.change, u.current, u.previous_sequence, u.received_at";
/** They lie behind the record, so reading them without it is not cheap. */
const recordColumns = "u.record, u.unpacked_size, u.seal";

/** Answers with the current record of a conversation, or with the one that was current as of a sequence. */
export function get(statements: Statements, { conversationId, asOf }: GetRequest): Answer {
	const id = uuidBytes(conversationId);
	if (id === undefined) return { value: undefined };
	const row =
		asOf === undefined
			? statements
					.bigints(`
						SELECT ${columns}, ${recordColumns} FROM heads h JOIN updates u ON u.sequence = h.sequence
						WHERE h.conversation_id = ?
					`)
					.get(id)
			: statements
					.bigints(`
						SELECT ${columns}, ${recordColumns} FROM heads h CROSS JOIN updates u INDEXED BY updates_by_conversation ON u.conversation = h.id
						WHERE h.conversation_id = ? AND u.sequence <= ? AND u.current = 1
						ORDER BY u.sequence DESC LIMIT 1
					`)
					.get(id, bindable(asOf));
	if (row === undefined) return { value: undefined };
	const values = columnsOf(row);
	return { value: updateOf(values), parts: [loadRecord(values[6], values[7])] };
}

/** Answers with updates in order of sequence. */
export function listUpdates(statements: Statements, query: UpdateQuery): Answer {
	const id = query.conversationId === undefined ? undefined : uuidBytes(query.conversationId);
	if (query.conversationId !== undefined && id === undefined) return { value: [] };
	const statement = statements.bigints(`
		SELECT ${columns}${query.withRecords ? `, ${recordColumns}` : ""}
		FROM ${id === undefined ? ofAll : ofOne}
		WHERE u.sequence > ?1 ORDER BY u.sequence LIMIT ?2
	`);
	const answers: UpdateAnswer[] = [];
	const parts: Uint8Array[] = [];
	let bytes = 0;
	for (const row of statement.iterate(bindable(query.after), query.limit, ...(id === undefined ? [] : [id]))) {
		const values = columnsOf(row);
		if (query.withRecords) {
			bytes += recordSize(values[6], values[7]);
			if (answers.length > 0 && bytes > (query.maxBytes ?? Number.POSITIVE_INFINITY)) break;
			parts.push(loadRecord(values[6], values[7]));
		}
		answers.push(updateOf(values));
	}
	return { value: answers, parts };
}

/** The sequences that are certainly stored. */
export function rangeOf(statements: Statements): SequenceRange {
	const row = statements.bigints("SELECT pruned_through, (SELECT max(sequence) FROM updates) FROM store_state").get();
	const [prunedThrough, newest] = columnsOf(row);
	const pruned = bigint(prunedThrough);
	const stored = nullable(bigint, newest) ?? 0n;
	return { oldest: pruned + 1n, newest: stored > pruned ? stored : pruned };
}

function updateOf(values: readonly unknown[]): UpdateAnswer {
	const [id, sequence, change, current, previousSequence, receivedAt, , , seal] = values;
	return {
		conversationId: uuidText(blob(id)),
		sequence: bigint(sequence),
		repeated: false,
		change: changeOf(change),
		current: current === 1n,
		previousSequence: nullable(bigint, previousSequence),
		receivedAt: bigint(receivedAt),
		seal: seal === undefined ? undefined : Number(bigint(seal)),
	};
}
