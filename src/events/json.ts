/** A JSON value. Integers beyond 2^53 are bigints. */
export type Json = string | number | bigint | boolean | null | Json[] | JsonMembers;
export type JsonMembers = { [name: string]: Json };

/** Whether a JSON value is an object: neither null, an array nor a scalar. */
export function isJsonMembers(value: Json | undefined): value is JsonMembers {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An own member of a JSON object; undefined when it has none of this name. */
export function memberOf(members: JsonMembers, name: string): Json | undefined {
	return Object.hasOwn(members, name) ? members[name] : undefined;
}

/** Whether two JSON values say the same. The order of members does not count, nor does the sign of zero. */
export function isSameJson(one: Json | undefined, other: Json | undefined): boolean {
	if (one === other) return true;
	if (Array.isArray(one))
		return (
			Array.isArray(other) && one.length === other.length && one.every((item, index) => isSameJson(item, other[index]))
		);
	if (!isJsonMembers(one) || !isJsonMembers(other)) return false;
	const names = Object.keys(one);
	return (
		names.length === Object.keys(other).length &&
		names.every((name) => Object.hasOwn(other, name) && isSameJson(one[name], other[name]))
	);
}
