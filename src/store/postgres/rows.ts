import { createHash } from "node:crypto";
import { mergeProtected, mergeRecord } from "../../record/record-delta.ts";
import type { HeadState } from "../head.ts";
import { readOrUnreadable } from "../record-column.ts";
import { recordFrom, stateFrom } from "../rows.ts";
import type { RecordReader as RecordReaderOfSession } from "../session.ts";
import { tableOf } from "../tables.ts";
import { bigint, nullable, type Row, type StoredRecord, text, type Unreadable } from "../values.ts";

/** Converts rows of the tables to the types that the rules of the store use. */

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;

/** Returns whether a text can be the id of a stored conversation. */
export function isConversationId(id: string): boolean {
	return UUID.test(id);
}

/** Returns the text of a column from its stored form: see {@link encodeText}. */
export function decoded(value: unknown): string {
	return decodeText(text(value));
}

/** SQL columns of `c` that {@link stateOf} reads. */
export const STATE_COLUMNS = Object.keys(tableOf("postgres", "heads").columns)
	.filter((name) => !["conversation_id", "source_id", "parent_id", "sender", "owner"].includes(name))
	.map((name) => `c.${name}`)
	.join();

/** Returns the state of a conversation; undefined when it has no record. */
export function stateOf(row: Row): HeadState | undefined {
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

/**
 * The stored form of texts. A PostgreSQL text cannot contain U+0000, which a JSON string can: it is stored as U+0001 and
 * two marks. U+0001 and the marks themselves are escaped in the same way. So different texts stay different, and a text
 * contains another one exactly if its stored form contains the stored form of the other. A lone surrogate becomes U+FFFD,
 * as in UTF-8.
 */

const ESCAPE = "\u0001";
/** Marks for the bits 0 and 1. Two of them are the number, from 0 to 3, of an escaped character. */
const MARKS = ["\u0002", "\u0003"] as const;

/** Returns the stored form of a text. */
export function encodeText(text: string): string {
	// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that are escaped
	return text.toWellFormed().replace(/[\u0000-\u0003]/g, (character) => {
		const code = character.charCodeAt(0);
		return ESCAPE + MARKS[code >> 1 === 0 ? 0 : 1] + MARKS[code % 2 === 0 ? 0 : 1];
	});
}

/** Returns the text of a stored form. */
export function decodeText(stored: string): string {
	// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that are escaped
	return stored.replace(/\u0001([\u0002\u0003])([\u0002\u0003])/g, (_, high: string, low: string) =>
		String.fromCharCode((high === MARKS[1] ? 2 : 0) + (low === MARKS[1] ? 1 : 0)),
	);
}

/** Maximum length of a text that an index holds whole, in UTF-16 code units. An index entry has at most 2,704 bytes. */
const MAX_KEY_LENGTH = 256;

/**
 * Returns the stored form of a text that is searched by an index and never read back. A long text is cut, with the SHA-256
 * of the whole text in place of the rest.
 */
export function encodeKey(text: string): string {
	if (text.length <= MAX_KEY_LENGTH) return encodeText(text);
	const digest = createHash("sha256").update(text).digest("hex");
	return encodeText(`${text.slice(0, MAX_KEY_LENGTH)}…${digest}`);
}
