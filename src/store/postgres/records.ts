import { mergeProtected, mergeRecord } from "../../record/record-delta.ts";
import { readOrUnreadable } from "../record-column.ts";
import { recordFrom } from "../rows.ts";
import type { RecordReader as RecordReaderOfSession } from "../session.ts";
import type { StoredRecord, Unreadable } from "../stored-record.ts";
import { bigint, nullable, type Row } from "../values.ts";

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
