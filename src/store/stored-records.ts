import { mergeProtected, mergeRecord } from "../record/record-delta.ts";
import { readOrUnreadable } from "./record-column.ts";
import { recordFrom } from "./rows.ts";
import type { Session } from "./session.ts";
import { bigint, nullable, type Row, type StoredRecord, text, type Unreadable } from "./values.ts";

/** Returns SQL for whether an entry is the one of the conversation and with the sequence of another row. */
export function isOfRow(entry: string, row: string): string {
	return `${entry}.conversation_id = ${row}.conversation_id AND ${entry}.sequence = ${row}.sequence`;
}

/** SQL columns of an update `u` that {@link readRecords} reads, after a comma. The rows have `conversation_id` too. */
export const RECORD_COLUMNS =
	", u.base_sequence, u.record, u.unpacked_size, u.checksum, u.redaction_version, u.schema_version";

/**
 * Reads the whole records that are the bases of deltas, once each.
 *
 * @returns a function that returns the whole record of one of the rows, in memory that nothing else uses. A damaged record
 *   does not make the others fail
 */
export async function readRecords(
	{ all, isIn, isAmong, dialect: { schema } }: Session,
	rows: readonly Row[],
): Promise<(row: Row) => StoredRecord | Unreadable> {
	const deltas = rows.filter(({ base_sequence }) => base_sequence !== null);
	const bases = new Map<bigint, StoredRecord | Unreadable>();
	if (deltas.length > 0) {
		const found = await all(
			`SELECT u.sequence ${RECORD_COLUMNS} FROM ${schema}updates u
			WHERE ${isIn("u.conversation_id")} AND ${isAmong("u.sequence")}`,
			[...new Set(deltas.map(({ conversation_id }) => text(conversation_id)))],
			[...new Set(deltas.map(({ base_sequence }) => bigint(base_sequence)))],
		);
		for (const row of found)
			bases.set(
				bigint(row.sequence),
				readOrUnreadable(() => recordFrom(row)),
			);
	}
	return (row) =>
		readOrUnreadable(() => {
			const base = nullable(bigint, row.base_sequence);
			const record = recordFrom(row);
			if (base === undefined) return record;
			const whole = bases.get(base);
			if (whole === undefined) throw new Error("the base record of a delta is missing");
			return "unreadable" in whole ? whole : mergeProtected(whole, record, mergeRecord);
		});
}
