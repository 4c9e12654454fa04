import { mergeProtected, mergeRecord } from "../../record/record-delta.ts";
import type { ConversationState } from "../conversation-state.ts";
import { readOrUnreadable } from "../record-column.ts";
import { recordFrom, stateFrom } from "../rows.ts";
import type { RecordReader as RecordReaderOfSession } from "../session.ts";
import { tableOf } from "../tables.ts";
import { bigint, nullable, type Row, type StoredRecord, text, type Unreadable } from "../values.ts";
import { decodeText } from "./stored-text.ts";

/** Converts rows of the tables to the types that the rules of the store use. */

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;

/** Returns whether a text can be the id of a stored conversation. */
export function isConversationId(id: string): boolean {
	return UUID.test(id);
}

/** Returns the decoded text of a column: see stored-text.ts. */
export function decoded(value: unknown): string {
	return decodeText(text(value));
}

/** SQL columns of `c` that {@link stateOf} reads. */
export const STATE_COLUMNS = Object.keys(tableOf("postgres", "heads").columns)
	.filter((name) => !["conversation_id", "source_id", "parent_id", "sender", "owner"].includes(name))
	.map((name) => `c.${name}`)
	.join();

/** Returns the state of a conversation; undefined when it has no record. */
export function stateOf(row: Row): ConversationState | undefined {
	return row.sequence === null ? undefined : stateFrom(row, decoded);
}

/**
 * SQL columns for the record of update `u` and, if that is a delta, for the record of its base `b`. Only the first row of
 * each base has its record, because a base can be large and have many deltas.
 */
const RECORD_COLUMNS = `,
	u.base_sequence, u.record, u.unpacked_size, u.checksum, u.redaction_version, u.schema_version,
	CASE WHEN row_number() OVER (PARTITION BY u.base_sequence ORDER BY u.sequence) = 1 THEN b.record END AS base_record,
	b.unpacked_size AS base_unpacked_size, b.checksum AS base_checksum,
	b.redaction_version AS base_redaction_version, b.schema_version AS base_schema_version
`;

/** SQL join that {@link RECORD_COLUMNS} needs. */
const BASE_JOIN = `
	LEFT JOIN conversation_updates.updates b ON b.conversation_id = u.conversation_id AND b.sequence = u.base_sequence
`;

/** Reads the records of one query result. */
export class RecordReader implements RecordReaderOfSession {
	readonly columns = RECORD_COLUMNS;
	readonly join = BASE_JOIN;
	/** Bases of deltas, by sequence. */
	readonly #bases = new Map<bigint, StoredRecord | Unreadable>();

	read(row: Row): StoredRecord | Unreadable {
		return readOrUnreadable(() => {
			const base = nullable(bigint, row.base_sequence);
			const record = recordFrom(row);
			if (base === undefined) return record;
			const whole = this.#bases.getOrInsertComputed(base, () => readOrUnreadable(() => recordFrom(row, "base_")));
			return "unreadable" in whole ? whole : mergeProtected(whole, record, mergeRecord);
		});
	}

	[Symbol.dispose](): void {
		this.#bases.clear();
	}
}
