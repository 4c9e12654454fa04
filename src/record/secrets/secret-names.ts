/** Names that hold one of these anywhere, without separators, tell of a secret. */
const TELLING = /secret|passw(?:or)?d|passphrase|credential|authorization|bearer|cookie|keyfile|sessionid/;
/** Last words of names that hold the names of secrets and not the secrets: `secret_refs`. */
const REFERENCE = /^refs?$/i;
/** Names written as one word, such as `apikey`. */
const COMPOUND = /(?:api|access|auth|private|session|ssh|signing|encryption|master|client|refresh)(?:key|token)s?$/;
const KEY = /^keys?$/;
const TOKEN = /^tokens?$/;
/** Words before `key` or `token` that make it something else: `primary_key`, `max_tokens`. */
const BEFORE = {
	key: new Set("primary foreign sort partition unique composite index group order cache public".split(" ")),
	token: new Set(
		"max min total num number count prompt completion input output reasoning thinking cached cache read write turn".split(
			" ",
		),
	),
};
/** Words after `key` or `token` that make it something else: `token_budget`. */
const AFTER = {
	key: new Set("name names path type order binding bindings error".split(" ")),
	token: new Set("budget limit limits count counts usage usages cost costs window type length per".split(" ")),
};

/** Identifies these rules; a release with other rules has another text. */
export const SECRET_NAME_RULES = [TELLING, REFERENCE, COMPOUND, KEY, TOKEN, BEFORE, AFTER]
	.map((rule) => (rule instanceof RegExp ? rule.source : JSON.stringify([[...rule.key], [...rule.token]])))
	.join("\n");

/** Senders use the same few names again and again; the bound keeps a hostile one from filling memory. */
const MAX_KNOWN = 4096;
const MAX_KNOWN_LENGTH = 256;
const known = new Map<string, boolean>();

/**
 * Whether the name of a JSON member that the schema does not name says that a string under it is a secret: it speaks of
 * a key, token, secret, password, credential, authorization, cookie or session id. Case and the way of joining words do
 * not matter. Names that only contain the letters (`monkey`), other keys and tokens (`primary_key`, `max_tokens`) and
 * references (`secret_refs`) do not say so.
 */
export function isSecretName(name: string): boolean {
	const before = known.get(name);
	if (before !== undefined) return before;
	const secret = tells(name);
	if (known.size < MAX_KNOWN && name.length <= MAX_KNOWN_LENGTH) known.set(name, secret);
	return secret;
}

function tells(name: string): boolean {
	const letters = name.replace(/[^A-Za-z0-9]+/g, "").toLowerCase();
	const isTelling = TELLING.test(letters);
	if (!isTelling && !/key|token/.test(letters)) return false;
	// Words are joined by other characters or told apart by their capital letters: `x-api-key`, `APIKeyId`.
	const words = name.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+/g) ?? [];
	if (REFERENCE.test(words.at(-1) ?? "")) return false;
	if (isTelling) return true;
	return words.some((word, index) => {
		const lower = word.toLowerCase();
		if (COMPOUND.test(lower)) return true;
		const kind = KEY.test(lower) ? "key" : TOKEN.test(lower) ? "token" : undefined;
		if (kind === undefined) return false;
		const [before, after] = [words[index - 1] ?? "", words[index + 1] ?? ""];
		return !BEFORE[kind].has(before.toLowerCase()) && !AFTER[kind].has(after.toLowerCase());
	});
}
