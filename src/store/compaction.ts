import { withinSize } from "./read-logs.ts";
import { type RecordColumn, repackText } from "./record-column.ts";
import { packedColumnsFrom } from "./rows.ts";
import type { RepackedRange, RepackedText, Session } from "./session.ts";
import { isOfRow } from "./stored-records.ts";
import { bigint } from "./values.ts";

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

/** The text of an event as it is stored. */
interface StoredText extends RecordColumn {
	readonly sequence: bigint;
}

/** The next texts of the log, in their order. */
export interface NextTexts {
	readonly texts: readonly StoredText[];
	/** Sequence of the newest event. */
	readonly newest: bigint;
}

/** Maximum number of events of a step, and of bytes of their texts, so that appends wait only for a short commit. */
const TEXTS_OF_STEP = 500;
const BYTES_OF_STEP = 2 ** 20;

/** Returns the texts of the events after a sequence, of which there is at least one if there are any. */
export async function findTexts({ all, dialect }: Session, after: bigint): Promise<NextTexts> {
	const page = `
		SELECT e.conversation_id, e.sequence, octet_length(e.text) AS size FROM ${dialect.schema}events e
		WHERE e.sequence > ? ORDER BY e.sequence LIMIT ${TEXTS_OF_STEP}
	`;
	const [position] = await all(`SELECT ${dialect.newest.events} AS newest`);
	const rows = await all(
		`SELECT e.sequence, e.text, e.unpacked_size, e.checksum
		FROM (${withinSize(page, String(BYTES_OF_STEP))}) p
		${dialect.join} ${dialect.schema}events e ON ${isOfRow("e", "p")} ORDER BY e.sequence`,
		after,
	);
	const texts = rows.map((row) => ({ sequence: bigint(row.sequence), ...packedColumnsFrom(row, "text") }));
	return { texts, newest: bigint(position?.newest) };
}

/**
 * Compresses the next texts.
 *
 * @param write writes them in one transaction, so that an interruption loses nothing
 */
export async function compactStep(
	{ texts, newest }: NextTexts,
	write: (range: RepackedRange) => Promise<void>,
): Promise<CompactedStep> {
	const [first, last] = [texts.at(0), texts.at(-1)];
	if (first === undefined || last === undefined) return { through: newest, newest, compressed: 0, hasMore: false };
	const repacked = (await Promise.all(texts.map(repack))).filter((text) => text !== undefined);
	if (repacked.length > 0) await write({ first: first.sequence, last: last.sequence, texts: repacked });
	return { through: last.sequence, newest, compressed: repacked.length, hasMore: true };
}

async function repack(text: StoredText): Promise<RepackedText | undefined> {
	const column = await repackText(text);
	return column && { sequence: text.sequence, formerChecksum: text.checksum, ...column };
}
