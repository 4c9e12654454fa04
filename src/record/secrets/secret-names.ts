/** A name that contains one of these, when its separators are removed, indicates a secret. */
const SECRET_WORDS =
	/secret|passw(?:or)?d|passphrase|credential|connectionstring|authorization|bearer|cookie|keyfile|sessionid/;
/** Last word of a name whose value refers to secrets but does not contain them: `secret_refs`. */
const REFERENCE = /^refs?$/i;
/** Names of keys and tokens that are written as one word, such as `apikey`. */
const COMPOUND = /(?:api|access|auth|private|session|ssh|signing|encryption|master|client|refresh)(?:key|token)s?$/;
const KEY = /^keys?$/;
const TOKEN = /^tokens?$/;
/** Words that indicate a secret by themselves. */
const WHOLE_WORDS = /^(?:pwds?|jwts?|pats?|dsns?)$/;
/** Words before `key` or `token` with which it is no secret: `primary_key`, `max_tokens`. */
const BEFORE = {
	key: new Set("primary foreign sort partition unique composite index group order cache public".split(" ")),
	token: new Set(
		"max min total num number count prompt completion input output reasoning thinking cached cache read write turn".split(
			" ",
		),
	),
};
/** Words after `key` or `token` with which it is no secret: `token_budget`. */
const AFTER = {
	key: new Set("name names path type order binding bindings error".split(" ")),
	token: new Set("budget limit limits count counts usage usages cost costs window type length per".split(" ")),
};

/** Text that identifies these rules: it changes when the rules change. */
export const SECRET_NAME_RULES = [SECRET_WORDS, REFERENCE, COMPOUND, WHOLE_WORDS, KEY, TOKEN, BEFORE, AFTER]
	.map((rule) => (rule instanceof RegExp ? rule.source : JSON.stringify([[...rule.key], [...rule.token]])))
	.join("\n");

/** Maximum number of cached names. Senders repeat a few names; the limit keeps a hostile one from filling memory. */
const MAX_CACHED_NAMES = 4096;
/** Maximum length of a cached name, in UTF-16 code units. */
const MAX_CACHED_LENGTH = 256;
const cache = new Map<string, boolean>();

/**
 * Whether the name of a JSON member that the schema does not name indicates that a string under it is a secret: the
 * name mentions a key, token (also JWT, PAT), secret, password, credential, authorization, cookie, session id or
 * connection string (also DSN). Letter case and the
 * way of joining words do not matter. Names that only contain the letters (`monkey`), names of other keys and tokens
 * (`primary_key`, `max_tokens`) and references (`secret_refs`) do not indicate a secret.
 */
export function isSecretName(name: string): boolean {
	const before = cache.get(name);
	if (before !== undefined) return before;
	const secret = indicatesSecret(name);
	if (cache.size < MAX_CACHED_NAMES && name.length <= MAX_CACHED_LENGTH) cache.set(name, secret);
	return secret;
}

function indicatesSecret(name: string): boolean {
	const letters = name.replace(/[^A-Za-z0-9]+/g, "").toLowerCase();
	const hasSecretWord = SECRET_WORDS.test(letters);
	if (!hasSecretWord && !/key|token|pwd|jwt|pat|dsn/.test(letters)) return false;
	// Other characters or capital letters separate the words: `x-api-key`, `APIKeyId`.
	const words = name.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+/g) ?? [];
	if (REFERENCE.test(words.at(-1) ?? "")) return false;
	if (hasSecretWord) return true;
	return words.some((word, index) => {
		const lower = word.toLowerCase();
		if (COMPOUND.test(lower) || WHOLE_WORDS.test(lower)) return true;
		const kind = KEY.test(lower) ? "key" : TOKEN.test(lower) ? "token" : undefined;
		if (kind === undefined) return false;
		const [before, after] = [words[index - 1] ?? "", words[index + 1] ?? ""];
		return !BEFORE[kind].has(before.toLowerCase()) && !AFTER[kind].has(after.toLowerCase());
	});
}
