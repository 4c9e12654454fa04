import { MAX_RECORD_DEPTH } from "./measure.ts";

/** JSON Pointers (RFC 6901). */

/** Returns the pointer for a path of member names and array indexes. */
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
