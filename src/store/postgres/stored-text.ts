import { createHash } from "node:crypto";

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
