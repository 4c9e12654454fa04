/** A secret: a string, or a number in a value that is secret as a whole. */
export type Secret = string | number | bigint;

/**
 * What the names above a value in free-form JSON say about secrets in it. Strings under a name such as `api_key` are
 * secrets, with two exceptions:
 *
 * - In a JSON Schema (draft 2020-12), names are those of arguments: a property `api_key` describes a key and has no key
 *   as its value. Under a property with such a name, keywords that describe are shown. Keywords that hold values
 *   (`default`, `examples`, `const`, `enum` and any unknown keyword) are secret.
 * - Under `mcpServers`, the usual name of a map of MCP servers, each server's `env`, `headers` and `auth` are secret as
 *   a whole, as they are in the fields for MCP servers.
 */
export interface SecretContext {
	/** What the value is. `schemas`: a map from names to JSON Schemas. `servers`: a map from names to MCP servers. */
	readonly kind: "json" | "schema" | "schemas" | "servers" | "server";
	/** Which values are secrets: none, the strings, or the strings and the numbers. */
	readonly secret: "none" | "strings" | "all";
}

export const PUBLIC_CONTEXT: SecretContext = { kind: "json", secret: "none" };
export const SECRET_STRINGS_CONTEXT: SecretContext = { kind: "json", secret: "strings" };
export const SECRET_CONTEXT: SecretContext = { kind: "json", secret: "all" };
export const SCHEMA_CONTEXT: SecretContext = { kind: "schema", secret: "none" };
export const SERVERS_CONTEXT: SecretContext = { kind: "servers", secret: "none" };

export const MCP_SERVERS = "mcpServers";

const SECRET_OF_SERVER = new Set(["env", "headers", "auth"]);
const MAPS_OF_SCHEMAS = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
/** Keywords of JSON Schema that do not hold values of an argument: those with schemas, and those that describe. */
const SHOWN_KEYWORDS = new Set([
	...["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "contains"],
	...["additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "dependentRequired"],
	...["type", "title", "description", "format", "pattern", "required", "contentEncoding", "contentMediaType"],
	...["$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$comment"],
]);

/** Text that identifies these rules: it changes when the rules change. */
export const FREE_FORM_RULES = [MCP_SERVERS, ...SECRET_OF_SERVER, ...MAPS_OF_SCHEMAS, ...SHOWN_KEYWORDS].join(" ");

/** Returns the context of a member's value. An element of an array has the context of the array. */
export function contextOf(outer: SecretContext, name: string, value: unknown): SecretContext {
	const { kind, secret } = outer;
	if (secret === "all") return SECRET_CONTEXT;
	const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
	const named = secret === "strings" || isSecretName(name) ? SECRET_STRINGS_CONTEXT : PUBLIC_CONTEXT;
	switch (kind) {
		case "servers":
			return isObject ? { kind: "server", secret } : named;
		case "server":
			return SECRET_OF_SERVER.has(name) ? SECRET_CONTEXT : named;
		case "schemas":
			// A value that is not an object is not a schema.
			return isObject ? { kind: "schema", secret: named.secret } : named;
		case "schema":
			if (MAPS_OF_SCHEMAS.has(name)) return { kind: "schemas", secret };
			return SHOWN_KEYWORDS.has(name) ? outer : named;
		case "json":
			if (secret === "strings") return outer;
			if (isObject && MAPS_OF_SCHEMAS.has(name)) return { kind: "schemas", secret };
			return isObject && name === MCP_SERVERS ? SERVERS_CONTEXT : named;
	}
}

/** Whether a string or number is a secret in a context. */
export function isSecretValue({ kind, secret }: SecretContext, value: Secret): boolean {
	if (secret === "all") return true;
	return secret === "strings" && typeof value === "string" && kind !== "schema" && kind !== "schemas";
}

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
