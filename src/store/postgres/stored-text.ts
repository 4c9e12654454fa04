import { createHash } from "node:crypto";

/**
 * Texts as the columns hold them. PostgreSQL's texts cannot hold U+0000, which the strings of JSON can: it is written as
 * U+0001 and two marks. So are U+0001 and the marks themselves, so that different texts stay different and a text contains
 * another one exactly if its stored form contains the other's stored form. A lone surrogate becomes U+FFFD, as in UTF-8.
 */

const ESCAPE = "\u0001";
/** Their numbers as two bits are the marks of the characters U+0000 to U+0003. */
const MARKS = ["\u0002", "\u0003"] as const;

/** The stored form of a text. */
export function encodeText(text: string): string {
	// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that are escaped
	return text.toWellFormed().replace(/[\u0000-\u0003]/g, (character) => {
		const code = character.charCodeAt(0);
		return ESCAPE + MARKS[code >> 1 === 0 ? 0 : 1] + MARKS[code % 2 === 0 ? 0 : 1];
	});
}

/** The text of a stored form. */
export function decodeText(stored: string): string {
	// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that are escaped
	return stored.replace(/\u0001([\u0002\u0003])([\u0002\u0003])/g, (_, high: string, low: string) =>
		String.fromCharCode((high === MARKS[1] ? 2 : 0) + (low === MARKS[1] ? 1 : 0)),
	);
}

/** Longest text that an index holds as it is, in UTF-16 code units: an entry of an index has at most 2,704 bytes. */
const MAX_KEY_LENGTH = 256;

/**
 * The stored form of a text that an index finds, and that is not read back: a long one is cut, with its SHA-256 in place
 * of the rest.
 */
export function encodeKey(text: string): string {
	if (text.length <= MAX_KEY_LENGTH) return encodeText(text);
	const digest = createHash("sha256").update(text).digest("hex");
	return encodeText(`${text.slice(0, MAX_KEY_LENGTH)}…${digest}`);
}
