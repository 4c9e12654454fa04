/** Differences between two JSON values. */

/** A place where two values differ. A value that is not there is undefined. */
export interface Difference {
	/** JSON Pointer (RFC 6901). */
	readonly path: string;
	readonly before: unknown;
	readonly after: unknown;
}

/** Returns the places where two JSON values differ. Objects and arrays of both are compared member by member. */
export function differences(before: unknown, after: unknown, path = ""): readonly Difference[] {
	if (isContainer(before) && isContainer(after) && Array.isArray(before) === Array.isArray(after)) {
		const names = new Set([...Object.keys(before), ...Object.keys(after)]);
		return [...names].flatMap((name) =>
			differences(
				memberOf(before, name),
				memberOf(after, name),
				`${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`,
			),
		);
	}
	return Object.is(before, after) ? [] : [{ path, before, after }];
}

function isContainer(value: unknown): value is object {
	return typeof value === "object" && value !== null;
}

function memberOf(container: object, name: string): unknown {
	return Object.hasOwn(container, name) ? Reflect.get(container, name) : undefined;
}
