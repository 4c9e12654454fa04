/** A JSON value. Integers beyond 2^53 are bigints, because a double cannot represent each of them. */
export type ExactJson = string | number | bigint | boolean | null | ExactJson[] | ExactJsonObject;
export type ExactJsonObject = { [name: string]: ExactJson };

/** Whether a JSON value is an object: neither null, an array nor a scalar. */
export function isJsonObject(value: unknown): value is ExactJsonObject {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Sets a member of an object that is used as a map. Unlike an assignment, it makes `__proto__` an ordinary member.
 */
export function setMember<T>(object: Record<string, T>, name: string, value: T): void {
	if (name === "__proto__")
		Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
	else object[name] = value;
}

/** Returns the own member of a JSON value that `name` (a member name or an array index) denotes, or undefined. */
export function memberOf(json: ExactJson | undefined, name: string): ExactJson | undefined {
	if (Array.isArray(json)) return /^(?:0|[1-9]\d*)$/.test(name) ? json[Number(name)] : undefined;
	return isJsonObject(json) && Object.hasOwn(json, name) ? json[name] : undefined;
}
