import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { NullValue, type Value } from "@bufbuild/protobuf/wkt";
import { isJsonObject } from "../plan/plan.ts";

/**
 * Most levels of objects and arrays in one free-form value. Protobuf readers stop at 100 nested messages, and a level
 * of JSON is up to three of them, so that deeper values could be stored but not read back everywhere.
 */
export const MAX_FREE_FORM_DEPTH = 32;

/** Most levels of objects and arrays in a whole record, for the same reason: unions and lists nest as well. */
export const MAX_RECORD_DEPTH = 48;

/** What a glance at a whole JSON value tells. */
export interface Inspection {
	/** Levels of objects and arrays; 0 for a scalar. */
	readonly depth: number;
	/** Whether all numbers are finite. `JSON.parse` reads 1e400 as infinity, which has no JSON form. */
	readonly finite: boolean;
}

/** Whether a JSON value has at most some levels of objects and arrays, and all of its numbers are finite. */
export function isWithinLimits(json: unknown, levels: number): boolean {
	const { depth, finite } = inspect(json);
	return finite && depth <= levels;
}

/** Looks at each value once. Not recursive, so that no input overflows the stack. */
export function inspect(json: unknown): Inspection {
	let depth = 0;
	let finite = true;
	let next: object[] = [];
	const visit = (item: unknown): void => {
		if (typeof item === "object") {
			if (item !== null) next.push(item);
		} else if (typeof item === "number" && !Number.isFinite(item)) finite = false;
	};
	visit(json);
	while (next.length > 0) {
		depth++;
		const level = next;
		next = [];
		for (const container of level) {
			if (Array.isArray(container)) for (const item of container) visit(item);
			else if (isJsonObject(container)) for (const name in container) visit(container[name]);
		}
	}
	return { depth, finite };
}

/**
 * Whether {@link toValue} makes the same value of what {@link fromValue} gives, which has at most some levels of objects
 * and arrays and only finite numbers.
 */
export function isNormalValue(value: Value, levels: number): boolean {
	const { kind } = value;
	if (value.$unknown !== undefined) return false;
	switch (kind.case) {
		case "stringValue":
		case "boolValue":
			return true;
		case "numberValue":
			return Number.isFinite(kind.value);
		case "nullValue":
			return kind.value === NullValue.NULL_VALUE;
		case "listValue":
			if (levels <= 0 || kind.value.$unknown !== undefined) return false;
			return kind.value.values.every((item) => isNormalValue(item, levels - 1));
		case "structValue":
			if (levels <= 0 || kind.value.$unknown !== undefined) return false;
			return Object.values(kind.value.fields).every((member) => isNormalValue(member, levels - 1));
		default:
			return false;
	}
}

/** Wraps a JSON value of at most {@link MAX_FREE_FORM_DEPTH} levels. */
export function toValue(json: JsonValue): Value {
	return { $typeName: "google.protobuf.Value", kind: toKind(json) };
}

function toKind(json: JsonValue): Value["kind"] {
	if (typeof json === "string") return { case: "stringValue", value: json };
	if (typeof json === "number") return { case: "numberValue", value: json };
	if (typeof json === "boolean") return { case: "boolValue", value: json };
	if (json === null) return { case: "nullValue", value: NullValue.NULL_VALUE };
	if (Array.isArray(json))
		return { case: "listValue", value: { $typeName: "google.protobuf.ListValue", values: json.map(toValue) } };
	const fields: Record<string, Value> = {};
	for (const [name, member] of Object.entries(json)) setMember(fields, name, toValue(member));
	return { case: "structValue", value: { $typeName: "google.protobuf.Struct", fields } };
}

/** Unwraps a value; one whose kind is not set is null. */
export function fromValue(value: Value): JsonValue {
	switch (value.kind.case) {
		case "stringValue":
		case "numberValue":
		case "boolValue":
			return value.kind.value;
		case "structValue": {
			const object: JsonObject = {};
			for (const [name, member] of Object.entries(value.kind.value.fields)) setMember(object, name, fromValue(member));
			return object;
		}
		case "listValue":
			return value.kind.value.values.map(fromValue);
		default:
			return null;
	}
}

/**
 * Sets a member of an object that serves as a map. Unlike assignment it makes `__proto__` an ordinary member, too.
 */
export function setMember<T>(object: Record<string, T>, name: string, value: T): void {
	if (name === "__proto__")
		Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
	else object[name] = value;
}

/** The own member of a JSON value that `name` (a member name or an array index) leads to, or undefined. */
export function memberOf(json: JsonValue | undefined, name: string): JsonValue | undefined {
	if (Array.isArray(json)) return /^(?:0|[1-9]\d*)$/.test(name) ? json[Number(name)] : undefined;
	return isJsonObject(json) && Object.hasOwn(json, name) ? json[name] : undefined;
}
