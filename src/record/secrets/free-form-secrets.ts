import { isSecretName } from "./secret-names.ts";

/** A secret: text, or a number in what is secret as a whole. */
export type Secret = string | number | bigint;

/**
 * What the names above a value in free-form JSON say about secrets. A name such as `api_key` says that the strings under
 * it are secrets, with two exceptions:
 *
 * - In a JSON Schema (draft 2020-12) names are those of arguments: a property `api_key` is described, not given. Under a
 *   property whose name tells of a secret, the keywords that describe it are shown, and what gives values (`default`,
 *   `examples`, `const`, `enum`, any other keyword) is secret.
 * - Under `mcpServers`, the usual name of a map of MCP servers, each server's `env`, `headers` and `auth` are secret,
 *   as they are in the fields for MCP servers.
 */
export interface Surroundings {
	/** `schemas`: a map from names to JSON Schemas; `servers`: a map from names to MCP servers. */
	readonly kind: "json" | "schema" | "schemas" | "servers" | "server";
	/** Which values are secrets: none, the strings, or the strings and the numbers. */
	readonly secret: "none" | "strings" | "all";
}

export const OPEN: Surroundings = { kind: "json", secret: "none" };
export const SECRET_STRINGS: Surroundings = { kind: "json", secret: "strings" };
export const SECRET: Surroundings = { kind: "json", secret: "all" };
/** The surroundings of the members of a JSON Schema. */
export const SCHEMA: Surroundings = { kind: "schema", secret: "none" };
/** The surroundings of the members of a map of MCP servers. */
export const SERVERS: Surroundings = { kind: "servers", secret: "none" };

/** Name of the member that holds a map of MCP servers. */
export const MCP_SERVERS = "mcpServers";

const SECRET_OF_SERVER = new Set(["env", "headers", "auth"]);
const MAPS_OF_SCHEMAS = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
/** Keywords whose values are schemas, and keywords that describe. */
const SHOWN_KEYWORDS = new Set([
	...["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "contains"],
	...["additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "dependentRequired"],
	...["type", "title", "description", "format", "pattern", "required", "contentEncoding", "contentMediaType"],
	...["$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$comment"],
]);

/** Identifies these rules; a release with other rules has another text. */
export const FREE_FORM_RULES = [MCP_SERVERS, ...SECRET_OF_SERVER, ...MAPS_OF_SCHEMAS, ...SHOWN_KEYWORDS].join(" ");

/** The surroundings that a member's value has. An element of an array has those of the array. */
export function surroundingsOf(outer: Surroundings, name: string, value: unknown): Surroundings {
	const { kind, secret } = outer;
	if (secret === "all") return SECRET;
	const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
	const named = secret === "strings" || isSecretName(name) ? SECRET_STRINGS : OPEN;
	switch (kind) {
		case "servers":
			return isObject ? { kind: "server", secret } : named;
		case "server":
			return SECRET_OF_SERVER.has(name) ? SECRET : named;
		case "schemas":
			// What is no object, and so no schema, is a value.
			return isObject ? { kind: "schema", secret: named.secret } : named;
		case "schema":
			if (MAPS_OF_SCHEMAS.has(name)) return { kind: "schemas", secret };
			return SHOWN_KEYWORDS.has(name) ? outer : named;
		case "json":
			if (secret === "strings") return outer;
			if (isObject && MAPS_OF_SCHEMAS.has(name)) return { kind: "schemas", secret };
			return isObject && name === MCP_SERVERS ? SERVERS : named;
	}
}

/** Whether a string or number in some surroundings is a secret. */
export function isSecretValue({ kind, secret }: Surroundings, value: Secret): boolean {
	if (secret === "all") return true;
	return secret === "strings" && typeof value === "string" && kind !== "schema" && kind !== "schemas";
}

/** Whether names in free-form JSON can make anything under them a secret. */
export function hasTellingName(json: unknown): boolean {
	if (typeof json !== "object" || json === null) return false;
	if (Array.isArray(json)) return json.some(hasTellingName);
	return Object.entries(json).some(
		([name, member]) => isSecretName(name) || name === MCP_SERVERS || hasTellingName(member),
	);
}
