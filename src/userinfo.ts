/**
 * The userinfo of URLs (RFC 3986, section 3.2.1): `user:password` in `https://user:password@host/`. It is a secret in
 * any string that contains the URL. A user name without a password is one in the schemes http and https only, where it
 * is nearly always a token; in others, such as `ssh://git@host/`, it names an account.
 */

/** Text in place of a secret that is not shown. */
export const REDACTED = "**********";

/** Text that identifies these rules: it changes when the rules change. */
export const USERINFO_RULES = "userinfo: user:password, and names alone in http";

const COLON = 0x3a;
const AT = 0x40;
/** Characters that end the authority of a URL or cannot be in it, besides control characters and spaces. */
const DELIMITERS = new Set([...'/?#"<>\\^`{|}'].map((character) => character.charCodeAt(0)));

/** Whether a text has a URL with a password or a token that is not redacted. Takes time linear in its length. */
export function hasUserinfo(text: string): boolean {
	return nextUserinfo(text, 0) !== undefined;
}

/** Returns the text with the userinfo of each URL replaced. */
export function replaceUserinfo(text: string, replace: (userinfo: string) => string): string {
	let replaced = "";
	let copied = 0;
	for (let found = nextUserinfo(text, 0); found !== undefined; found = nextUserinfo(text, found.end)) {
		replaced += text.slice(copied, found.start) + replace(text.slice(found.start, found.end));
		copied = found.end;
	}
	return replaced + text.slice(copied);
}

/**
 * Returns what may be repeated of a text that a client sent, in an answer or in the log: the text without passwords and
 * tokens in URLs. It is decoded first if a URL in it is percent-encoded.
 */
export function echoable(text: string): string {
	return replaceUserinfo(percentDecodedUrl(text) ?? text, () => REDACTED);
}

/** Returns a percent-decoded text if that reveals a password or a token in a URL. */
function percentDecodedUrl(text: string): string | undefined {
	if (!/%(?:2f|3a|40)/i.test(text)) return undefined;
	try {
		const decoded = decodeURIComponent(text);
		return hasUserinfo(decoded) ? decoded : undefined;
	} catch {
		return undefined;
	}
}

function nextUserinfo(text: string, from: number): { readonly start: number; readonly end: number } | undefined {
	for (let slashes = text.indexOf("://", from); slashes !== -1; slashes = text.indexOf("://", slashes + 1)) {
		const start = slashes + 3;
		let end = -1;
		let colon = -1;
		for (let index = start; index < text.length; index++) {
			const code = text.charCodeAt(index);
			if (code <= 0x20 || DELIMITERS.has(code)) break;
			// The last @ counts, because passwords are often written with an unescaped one.
			if (code === AT) end = index;
			else if (code === COLON && colon === -1) colon = index;
		}
		const isSecret = colon !== -1 ? colon < end : end > start && isHttp(text, slashes);
		if (isSecret && !(end - start === REDACTED.length && text.startsWith(REDACTED, start))) return { start, end };
	}
	return undefined;
}

/** Whether the scheme of a URL that ends at an index is http or https, or is built on them, such as `git+https`. */
function isHttp(text: string, end: number): boolean {
	return /https?$/i.test(text.slice(Math.max(0, end - 5), end));
}
