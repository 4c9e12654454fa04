import type { Value } from "../session.ts";
import { isConversationId, type Row } from "../values.ts";

/**
 * The stored form of texts. A PostgreSQL text cannot contain U+0000, which a JSON string can: it is stored as U+0001 and
 * two marks. U+0001 and the marks themselves are escaped in the same way. So different texts stay different, and a text
 * contains another one exactly if its stored form contains the stored form of the other. A lone surrogate becomes U+FFFD,
 * as in UTF-8.
 */

const ESCAPE = "\u0001";
/** Marks for the bits 0 and 1. Two of them are the number, from 0 to 3, of an escaped character. */
const MARKS = ["\u0002", "\u0003"] as const;

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that are escaped
const ESCAPED = /[\u0000-\u0003]/g;
const IS_ESCAPED = new RegExp(ESCAPED.source);

/** Returns the stored form of a text. */
export function encodeText(text: string): string {
	if (!IS_ESCAPED.test(text)) return text.toWellFormed();
	return text.toWellFormed().replace(ESCAPED, (character) => {
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

/** Returns a value as a statement takes it: texts in their stored form, and of lists only the ids of conversations. */
export function storedValue(value: Value | undefined): unknown {
	if (typeof value === "string") return encodeText(value);
	if (typeof value !== "object" || value === null) return value;
	if (value instanceof Uint8Array) return value;
	if (!("rows" in value)) return value.filter((one) => typeof one === "bigint" || isConversationId(one));
	const texts = value.rows.map((row) => row.map((one) => (typeof one === "bigint" ? String(one) : encodeText(one))));
	return JSON.stringify(texts);
}

/** Returns a row with its texts in place of their stored forms. */
export function readRow(row: Row): Row {
	let read: Record<string, unknown> | undefined;
	for (const name in row) {
		const value = row[name];
		if (typeof value !== "string" || !value.includes(ESCAPE)) continue;
		read ??= { ...row };
		read[name] = decodeText(value);
	}
	return read ?? row;
}
