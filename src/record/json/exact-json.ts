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
