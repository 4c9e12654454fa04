import { createHash } from "node:crypto";
import { REDACTED, replaceUserinfo } from "../userinfo.ts";

/** The forms in which texts of usage are stored, so that every engine can have them in an index. */

/** Maximum number of characters of a name. Five of them are in a key, and one of PostgreSQL has at most 2,704 bytes. */
const MAX_NAME = 100;
/** Maximum number of characters of the id of a response. */
const MAX_RESPONSE_ID = 256;

/** Returns the stored form of a model, a usage id, an agent kind, a sender or an owner: without passwords in URLs. */
export function nameOf(text: string): string {
	return cut(
		replaceUserinfo(text, () => REDACTED),
		MAX_NAME,
	);
}

/** Returns the stored form of the id of a model's response. */
export function responseKey(responseId: string): string {
	return cut(responseId, MAX_RESPONSE_ID);
}

/** Returns a text, if it is too long with the beginning of its SHA-256 in place of the end. */
function cut(text: string, maxLength: number): string {
	if (text.length <= maxLength) return text;
	const digest = createHash("sha256").update(text).digest("hex").slice(0, 16);
	return `${text.slice(0, maxLength - digest.length - 1).toWellFormed()}…${digest}`;
}
