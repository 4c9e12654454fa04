/** A JSON value. Integers beyond 2^53 are bigints, as a double does not tell one of them from the next. */
export type ExactJson = string | number | bigint | boolean | null | ExactJson[] | ExactJsonObject;
export type ExactJsonObject = { [name: string]: ExactJson };

declare global {
	interface JSON {
		/** A value that JSON.stringify writes as this text (ECMAScript 2026). */
		rawJSON(text: string): object;
	}
}

/** Writes a JSON text. A bigint is written with all of its digits. */
export function stringifyExactJson(value: unknown): string {
	return JSON.stringify(value, (_, member: unknown) =>
		typeof member === "bigint" ? JSON.rawJSON(String(member)) : member,
	);
}
