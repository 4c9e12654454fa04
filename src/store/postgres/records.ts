import { combined, mergeRecord } from "../../record/record-delta.ts";
import { readable } from "../record-column.ts";
import { recordFrom } from "../rows.ts";
import type { StoredRecord, UnreadableRecord } from "../store.ts";
import { bigint, nullable, type Row } from "../values.ts";

/**
 * SQL for the record of update `u`, and for that of update `b` over which it is a delta: only in the first row of each
 * base, because a base can be large and have many deltas.
 */
export const RECORD_COLUMNS = `
	u.base_sequence, u.record, u.unpacked_size, u.checksum, u.redaction_version, u.schema_version,
	CASE WHEN row_number() OVER (PARTITION BY u.base_sequence ORDER BY u.sequence) = 1 THEN b.record END AS base_record,
	b.unpacked_size AS base_unpacked_size, b.checksum AS base_checksum,
	b.redaction_version AS base_redaction_version, b.schema_version AS base_schema_version
`;

/** SQL that joins what {@link RECORD_COLUMNS} needs. */
export const BASE_JOIN = "LEFT JOIN conversation_updates.updates b ON b.sequence = u.base_sequence";

/** Reads the records of one answer, whose rows have {@link RECORD_COLUMNS}. */
export class RecordReader {
	/** The bases of deltas, by sequence. */
	readonly #bases = new Map<bigint, StoredRecord | UnreadableRecord>();

	/** The whole record of an update. One that is damaged does not fail the query for all. */
	read(row: Row): StoredRecord | UnreadableRecord {
		return readable(() => {
			const base = nullable(bigint, row.base_sequence);
			const record = recordFrom(row);
			if (base === undefined) return record;
			const whole = this.#bases.getOrInsertComputed(base, () => readable(() => recordFrom(row, "base_")));
			return "unreadable" in whole ? whole : combined(whole, record, mergeRecord);
		});
	}
}
