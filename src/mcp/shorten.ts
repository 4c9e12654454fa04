import { type ExactJson, isJsonObject } from "../record/json/json-value.ts";

/** A JSON value that `JSON.stringify` can write. */
export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

/** Least number of bytes to which any value can be shortened. */
export const LEAST = 64;
/** Name of the member that says how many members were left out. */
const REST = "…";
/** Bytes of the note that says how many members or items were left out. */
const NOTE = 48;

/** Returns a value with its integers beyond 2^53 as texts, because a reader of JSON may round them. */
export function plainJson(json: ExactJson): Json {
	if (typeof json === "bigint") return String(json);
	if (Array.isArray(json)) return json.map(plainJson);
	if (!isJsonObject(json)) return json;
	return Object.fromEntries(Object.entries(json).map(([name, member]) => [name, plainJson(member)]));
}

/** Returns the number of bytes of the JSON text of a value. */
export function bytesOf(json: Json): number {
	return Buffer.byteLength(JSON.stringify(json));
}

/**
 * Shortens a value until its JSON text has at most a number of bytes. Small members stay whole; large texts are cut, and
 * what is left out is counted in its place. A value that fits is returned as it is.
 *
 * @param bytes at least {@link LEAST}
 */
export function shorten(json: Json, bytes: number): Json {
	if (bytesOf(json) <= bytes) return json;
	if (typeof json === "string") return cutText(json, bytes).shown;
	if (Array.isArray(json)) {
		const { kept, left } = shortenAll(
			json.map((item) => ["", item]),
			bytes,
		);
		const items = kept.map(([, item]) => item);
		return left === 0 ? items : [...items, `… ${left} items left out`];
	}
	if (typeof json !== "object" || json === null) return json;
	const { kept, left } = shortenAll(Object.entries(json), bytes);
	return Object.fromEntries(left === 0 ? kept : [...kept, [REST, `${left} members left out`]]);
}

type Entry = readonly [name: string, value: Json];

/** Gives each entry an equal share of the bytes. What small ones do not need goes to the larger ones. */
function shortenAll(entries: readonly Entry[], bytes: number): { kept: Entry[]; left: number } {
	const measured = entries.map(([name, value]) => {
		// An item has a comma, a member also its name and a colon.
		const around = name === "" ? 4 : Buffer.byteLength(JSON.stringify(name)) + 2;
		return { name, value, around, size: bytesOf(value) };
	});
	let room = bytes - 2 - NOTE;
	const end = measured.findIndex(({ around, size }) => {
		room -= around + Math.min(LEAST, size);
		return room < 0;
	});
	const kept = end === -1 ? measured : measured.slice(0, end);
	const left = measured.length - kept.length;
	let rest = kept.reduce((sum, { around }) => sum - around, bytes - 2 - (left === 0 ? 0 : NOTE));
	const fitted = new Map<string | number, Json>();
	const bySize = kept.map((entry, n) => ({ ...entry, n })).sort((a, b) => a.size - b.size);
	for (const [done, { n, value }] of bySize.entries()) {
		const shown = shorten(value, Math.floor(rest / (bySize.length - done)));
		rest -= bytesOf(shown);
		fitted.set(n, shown);
	}
	return { kept: kept.map(({ name, value }, n) => [name, fitted.get(n) ?? value]), left };
}

/**
 * Cuts a text, so that its JSON text has at most a number of bytes.
 *
 * @param bytes at least {@link LEAST}
 * @param from number of UTF-16 code units at its beginning that are left out
 * @returns `end` is where it was cut, in UTF-16 code units
 */
export function cutText(text: string, bytes: number, from = 0): { shown: string; end: number } {
	let end = Math.min(text.length, from + bytes);
	for (;;) {
		const rest = end < text.length ? `… [cut: ends at ${end} of ${text.length} characters]` : "";
		const shown = text.slice(from, end) + rest;
		const over = bytesOf(shown) - bytes;
		if (over <= 0) return { shown, end };
		// A code unit takes at most 6 bytes.
		end = Math.max(from, end - Math.ceil(over / 6));
		// Not between the two halves of a character.
		if (/[\ud800-\udbff]/.test(text.charAt(end - 1))) end = Math.max(from, end - 1);
	}
}

/** Returns as many of the first rows as fit, and at least one. */
export function firstRows(rows: readonly Json[], bytes: number): Json[] {
	let room = bytes;
	const end = rows.findIndex((row, n) => {
		room -= bytesOf(row) + 1;
		return room < 0 && n > 0;
	});
	return end === -1 ? [...rows] : rows.slice(0, end);
}
