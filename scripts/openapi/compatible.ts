import { type ExactJson, type ExactJsonObject, isJsonObject } from "../../src/record/json/json-value.ts";

/** Members that say nothing to a program. */
const TEXTS = new Set(["description", "summary", "title", "example", "examples", "info", "externalDocs"]);
/** Members of a schema that refuse values. A new one breaks requests that were accepted. */
const LIMITS = new Set(["required", "enum", "format", "pattern", "const"]);
const LIMIT = /^(min|max|exclusive)/;

/**
 * Returns where an OpenAPI document breaks clients of an earlier one, as JSON pointers with a reason. Whatever the earlier one
 * says must still hold: paths, parameters, members and values may be added, and none may go or change its type. Which
 * members are required stays the same.
 */
export function incompatibilities(earlier: ExactJson, now: ExactJson | undefined, at = ""): string[] {
	if (now === undefined) return [`${at}: is gone`];
	if (Array.isArray(earlier)) return Array.isArray(now) ? arrayIncompatibilities(earlier, now, at) : [`${at}: differs`];
	if (!isJsonObject(earlier)) return earlier === now ? [] : [`${at}: differs`];
	if (!isJsonObject(now)) return [`${at}: differs`];
	const isNames = /\/(properties|schemas|parameters|responses|paths|\$defs)$/.test(at);
	const differences = Object.entries(earlier).flatMap(([name, value]) =>
		!isNames && (TEXTS.has(name) || name.startsWith("x-")) ? [] : incompatibilities(value, now[name], `${at}/${name}`),
	);
	if (isNames) return differences;
	const added = Object.keys(now).filter((name) => !(name in earlier) && (LIMITS.has(name) || LIMIT.test(name)));
	return [...differences, ...added.map((name) => `${at}/${name}: is new`)];
}

function arrayIncompatibilities(earlier: readonly ExactJson[], now: readonly ExactJson[], at: string): string[] {
	const gone = earlier.flatMap((value, index) =>
		now.some((other) => incompatibilities(value, other).length === 0) ? [] : [`${at}/${index}: is gone`],
	);
	const isRequired = at.endsWith("/required");
	const added = isRequired ? now.filter((value) => !earlier.includes(value)) : [];
	// A parameter that must be given is new.
	const mandatory = at.endsWith("/parameters")
		? now.filter(
				(one) => isJsonObject(one) && one.required === true && !earlier.some((other) => isSameParameter(one, other)),
			)
		: [];
	return [...gone, ...[...added, ...mandatory].map((value) => `${at}: ${JSON.stringify(value)} is new`)];
}

function isSameParameter(one: ExactJsonObject, other: ExactJson): boolean {
	return isJsonObject(other) && one.name === other.name && one.in === other.in;
}
