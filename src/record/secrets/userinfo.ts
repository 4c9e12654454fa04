/**
 * The userinfo of URLs (RFC 3986, section 3.2.1): `user:password` in `https://user:password@host/`. It is a secret in
 * any string that contains the URL.
 */

const COLON = 0x3a;
const AT = 0x40;
/** Characters that end the authority of a URL or cannot be in it, besides control characters and spaces. */
const DELIMITERS = new Set([...'/?#"<>\\^`{|}'].map((character) => character.charCodeAt(0)));

/** Whether a text has a URL with a user name and a password. Takes time linear in the length of the text. */
export function hasUserinfo(text: string): boolean {
	return nextUserinfo(text, 0) !== undefined;
}

/** Returns the text with each user name and password in a URL replaced. */
export function replaceUserinfo(text: string, replace: (userinfo: string) => string): string {
	let replaced = "";
	let copied = 0;
	for (let found = nextUserinfo(text, 0); found !== undefined; found = nextUserinfo(text, found.end)) {
		replaced += text.slice(copied, found.start) + replace(text.slice(found.start, found.end));
		copied = found.end;
	}
	return replaced + text.slice(copied);
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
		if (colon !== -1 && colon < end) return { start, end };
	}
	return undefined;
}
