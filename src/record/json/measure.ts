import { hasUserinfo } from "../../userinfo.ts";
import { type ExactJson, isJsonObject } from "./json-value.ts";

/** Maximum number of elements and members in a record, free-form JSON included. Real records have a few thousand. */
export const MAX_VALUES = 200_000;

/**
 * Maximum number of levels of objects and arrays in one free-form value. Protobuf readers accept 100 nested messages,
 * and a level of JSON is up to three of them. So deeper values could be stored, but some readers could not read them.
 */
export const MAX_FREE_FORM_DEPTH = 32;

/** Maximum number of levels in a whole record, for the same reason: unions and lists nest as well. */
export const MAX_RECORD_DEPTH = 48;

/** Sizes of a JSON value. */
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
 */
export function measure(json: ExactJson): JsonSize {
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
			if (Array.isArray(container)) {
				values += container.length;
				for (const item of container) visit(item);
			} else if (isJsonObject(container))
				for (const name in container) {
					values++;
					userinfoInNames ||= hasUserinfo(name);
					visit(container[name]);
				}
		}
	}
	return { depth, values, finite, large, userinfoInNames };
}
