import { isSecretName } from "./secret-names.ts";

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
/** Context of the members of a JSON Schema. */
export const SCHEMA_CONTEXT: SecretContext = { kind: "schema", secret: "none" };
/** Context of the members of a map of MCP servers. */
export const SERVERS_CONTEXT: SecretContext = { kind: "servers", secret: "none" };

/** Name of the member that holds a map of MCP servers. */
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

/** Whether free-form JSON has a name that can make a value under it a secret. */
export function hasSecretName(json: unknown): boolean {
	if (typeof json !== "object" || json === null) return false;
	if (Array.isArray(json)) return json.some(hasSecretName);
	return Object.entries(json).some(
		([name, member]) => isSecretName(name) || name === MCP_SERVERS || hasSecretName(member),
	);
}
