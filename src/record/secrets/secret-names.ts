const ALWAYS = /secret|password|authorization|cookie/;
// Not "keyword" or "tokenizer", but "api_key", "keys" and "token2".
const WHOLE = /(?:key|token)s?(?![a-z])/;

/** Tells these rules from those of another release. */
export const SECRET_NAME_RULES = `${ALWAYS.source} ${WHOLE.source}`;

/** Senders use the same few names again and again; the bound keeps a hostile one from filling memory. */
const MAX_KNOWN = 4096;
const known = new Map<string, boolean>();

/**
 * Whether the name of a JSON member that the schema does not name says that a string under it is a secret: it speaks
 * of a key, token, secret, password, authorization or cookie. Case and camel case do not matter.
 */
export function isSecretName(name: string): boolean {
	const before = known.get(name);
	if (before !== undefined) return before;
	const words = name.replace(/([a-z0-9])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])/g, "$1$2_").toLowerCase();
	const secret = ALWAYS.test(words) || WHOLE.test(words);
	if (known.size < MAX_KNOWN) known.set(name, secret);
	return secret;
}
