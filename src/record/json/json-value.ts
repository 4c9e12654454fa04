import { hasUserinfo } from "../../userinfo.ts";

/** A JSON value. Integers beyond 2^53 are bigints, because a double cannot represent each of them. */
export type ExactJson = string | number | bigint | boolean | null | ExactJson[] | ExactJsonObject;
export type ExactJsonObject = { [name: string]: ExactJson };

/** Whether a JSON value is an object: neither null, an array nor a scalar. */
export function isJsonObject(value: unknown): value is ExactJsonObject {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A generated message as an object of its properties, or a map field as an object of its entries. */
export type Fields = Record<string, unknown>;

export function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}

/** Sets a member of an object that is used as a map, `__proto__` like any other. */
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

/** Returns the elements of an array; none for any other value. */
export function listOf(json: ExactJson | undefined): ExactJson[] {
	return Array.isArray(json) ? json : [];
}

/** Returns a text that is not empty; `otherwise` for any other value. */
export function textOf(json: ExactJson | undefined, otherwise = ""): string {
	return typeof json === "string" && json !== "" ? json : otherwise;
}

/**
 * Whether two trees of plain objects, messages, arrays and scalars are equal in any order of members. 0 equals -0, and a
 * member that is undefined equals none.
 */
export function sameTree(a: unknown, b: unknown): boolean {
	if (a === b) return true;
	if (!isFields(a) || !isFields(b) || Array.isArray(a) !== Array.isArray(b)) return false;
	if (Array.isArray(a) && a.length !== b.length) return false;
	return (
		Object.keys(a).every((name) => sameTree(a[name], Object.hasOwn(b, name) ? b[name] : undefined)) &&
		Object.keys(b).every((name) => b[name] === undefined || Object.hasOwn(a, name))
	);
}

/** JSON Pointers (RFC 6901). */

export function toPointer(path: readonly (string | number)[]): string {
	let pointer = "";
	for (const token of path) pointer += `/${typeof token === "string" ? escapeToken(token) : token}`;
	return pointer;
}

function escapeToken(token: string): string {
	if (!token.includes("~") && !token.includes("/")) return token;
	return token.replaceAll("~", "~0").replaceAll("/", "~1");
}

/**
 * Returns the reference tokens of a pointer, or undefined when `pointer` is not a JSON Pointer (RFC 6901, section 3) or
 * has more than {@link MAX_RECORD_DEPTH} tokens.
 */
export function parsePointer(pointer: string): string[] | undefined {
	if (pointer === "") return [];
	if (!pointer.startsWith("/")) return undefined;
	const tokens = pointer.slice(1).split("/", MAX_RECORD_DEPTH + 1);
	if (tokens.length > MAX_RECORD_DEPTH) return undefined;
	if (!pointer.includes("~")) return tokens;
	if (/~(?![01])/.test(pointer)) return undefined;
	return tokens.map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Returns the last reference token of a pointer: the name of the member that it denotes. */
export function lastToken(pointer: string): string {
	return pointer
		.slice(pointer.lastIndexOf("/") + 1)
		.replaceAll("~1", "/")
		.replaceAll("~0", "~");
}

/** Maximum number of elements and members in a record, free-form JSON included. Real records have a few thousand. */
export const MAX_VALUES = 200_000;

/**
 * Maximum number of levels of objects and arrays in one free-form value. Protobuf readers accept 100 nested messages,
 * and a level of JSON is up to three of them. So deeper values could be stored, but some readers could not read them.
 */
export const MAX_FREE_FORM_DEPTH = 32;

/** Maximum number of levels in a whole record, for the same reason: unions and lists nest as well. */
export const MAX_RECORD_DEPTH = 48;

export interface JsonSize {
	/** Number of levels of objects and arrays; 0 for a scalar. */
	readonly depth: number;
	/** Number of elements and members, at all levels. */
	readonly values: number;
	/** Whether all numbers are finite. `JSON.parse` reads 1e400 as infinity, which has no JSON form. */
	readonly finite: boolean;
	/** Whether a number, double or bigint, is beyond 2^53, where a double cannot represent each integer. */
	readonly large: boolean;
	/** Whether a member name has a URL with a password or a token. */
	readonly userinfoInNames: boolean;
}

/**
 * Measures a JSON value. Not recursive, so that no depth overflows the stack. Stops when {@link MAX_VALUES} or
 * {@link MAX_RECORD_DEPTH} is exceeded, and returns the sizes found until then.
 *
 * @param mayHaveUserinfo whether names are searched for URLs with a password or a token
 */
export function measure(json: ExactJson, mayHaveUserinfo = true): JsonSize {
	let depth = 0;
	let values = 0;
	let finite = true;
	let large = false;
	let userinfoInNames = false;
	let next: object[] = [];
	const visit = (item: unknown): void => {
		if (typeof item === "object") {
			if (item !== null) next.push(item);
		} else if (typeof item === "number" && !(Math.abs(item) <= Number.MAX_SAFE_INTEGER)) {
			if (Number.isFinite(item)) large = true;
			else finite = false;
		} else if (typeof item === "bigint") large = true;
	};
	visit(json);
	while (next.length > 0 && depth <= MAX_RECORD_DEPTH && values <= MAX_VALUES) {
		depth++;
		const level = next;
		next = [];
		for (const container of level) {
			if (values > MAX_VALUES) break;
			const items = Array.isArray(container) ? container : Object.values(container);
			values += items.length;
			for (const item of items) visit(item);
			if (mayHaveUserinfo && items !== container) userinfoInNames ||= Object.keys(container).some(hasUserinfo);
		}
	}
	return { depth, values, finite, large, userinfoInNames };
}
