/** JSON Pointers (RFC 6901). */

/** The pointer that the member names and array indexes of `path` make. */
export function toPointer(path: readonly (string | number)[]): string {
	return path.map((token) => `/${String(token).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

/** Reference tokens of a pointer, or undefined when `pointer` is not one (RFC 6901, section 3). */
export function parsePointer(pointer: string): string[] | undefined {
	if (pointer === "") return [];
	if (!pointer.startsWith("/") || /~(?![01])/.test(pointer)) return undefined;
	return pointer
		.slice(1)
		.split("/")
		.map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}
