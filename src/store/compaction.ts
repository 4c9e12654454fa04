import { withinSize } from "./read-logs.ts";
import { repackText } from "./record-column.ts";
import { columnsFrom, isOfRow, packedColumnsFrom } from "./rows.ts";
import type { Session } from "./session.ts";
import { bigint, type RecordColumn, text } from "./values.ts";

/** The steps by which the command `compact` compresses the texts of stored events. */

/** What a step has done that compresses texts of stored events. */
export interface CompactedStep {
	/** All events up to this sequence have been examined. */
	readonly through: bigint;
	readonly newest: bigint;
	/** Number of texts that were compressed. */
	readonly compressed: number;
	readonly hasMore: boolean;
}

/** What was returned of the free pages of a database. */
export interface ReturnedSpace {
	readonly returnedBytes: bigint;
	/** Size of the pages that are still free. */
	readonly freeBytes: bigint;
	/** Whether the database can return more of them. */
	readonly hasMore: boolean;
}

/** Maximum number of events of a step, and of bytes of their texts, so that appends wait only for a short transaction. */
const EVENTS = 250;
const BYTES = 2 ** 19;

/** Compresses the texts of the next events after a sequence, of at least one event if there are any. */
export async function compactEvents(session: Session, after: bigint): Promise<CompactedStep> {
	const { all, isIn, isAmong, dialect } = session;
	const page = `
		SELECT e.conversation_id, e.sequence, octet_length(e.text) AS size FROM ${dialect.schema}events e
		WHERE e.sequence > ? ORDER BY e.sequence LIMIT ${EVENTS}
	`;
	const [position] = await all(`SELECT ${dialect.newest.events} AS newest`);
	const newest = bigint(position?.newest);
	const rows = await all(
		`SELECT e.conversation_id, e.sequence, e.text, e.unpacked_size, e.checksum
		FROM (${withinSize(page, String(BYTES))}) p
		${dialect.join} ${dialect.schema}events e ON ${isOfRow("e", "p")} ORDER BY e.sequence`,
		after,
	);
	const last = rows.at(-1);
	if (last === undefined) return { through: newest, newest, compressed: 0, hasMore: false };
	const repacked = new Map<bigint, { readonly former: unknown; readonly column: RecordColumn }>();
	for (const row of rows) {
		const column = await repackText(packedColumnsFrom(row, "text"));
		if (column !== undefined) repacked.set(bigint(row.sequence), { former: row.checksum, column });
	}
	// SQLite's rows are all written anew in their order, so that they fill their pages. Rows that become shorter in their
	// place leave the pages half empty.
	const rewritten = rows.filter((row) => dialect.engine === "sqlite" || repacked.has(bigint(row.sequence)));
	if (repacked.size > 0) {
		const ids = [...new Set(rewritten.map(({ conversation_id }) => text(conversation_id)))];
		await session.lock(ids);
		const stored = await all(
			`DELETE FROM ${dialect.schema}events WHERE ${isIn("conversation_id")} AND ${isAmong("sequence")} RETURNING *`,
			ids,
			rewritten.map(({ sequence }) => bigint(sequence)),
		);
		stored.sort((one, other) => (bigint(one.sequence) < bigint(other.sequence) ? -1 : 1));
		await session.insert(
			"events",
			stored.map((row) => {
				const { former, column } = repacked.get(bigint(row.sequence)) ?? {};
				// With another checksum the text was changed meanwhile.
				if (column === undefined || row.checksum !== former) return columnsFrom(row);
				const { record, unpackedSize, checksum } = column;
				return { ...columnsFrom(row), text: record, unpacked_size: unpackedSize, checksum };
			}),
		);
	}
	return { through: bigint(last.sequence), newest, compressed: repacked.size, hasMore: true };
}
