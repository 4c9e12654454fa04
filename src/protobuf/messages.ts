/**
 * Derives a function for a message type once, and returns the same function for later calls. If the type contains
 * itself, the inner call returns a placeholder, which calls the derived function later.
 *
 * @param known functions that were derived before; the new function is added to it
 * @param derive must only store the functions that it gets for other types, not call them
 */
export function deriveOnce<Key, Arguments extends readonly unknown[], Result>(
	known: Map<Key, (...args: Arguments) => Result>,
	key: Key,
	derive: () => (...args: Arguments) => Result,
): (...args: Arguments) => Result {
	const before = known.get(key);
	if (before !== undefined) return before;
	let complete: ((...args: Arguments) => Result) | undefined;
	known.set(key, (...args) => {
		if (complete === undefined) throw new TypeError("a function was called while it was being derived");
		return complete(...args);
	});
	complete = derive();
	known.set(key, complete);
	return complete;
}

/** A generated message as an object of its properties, or a map field as an object of its entries. */
export type Fields = Record<string, unknown>;

/** Returns whether a value can be read as {@link Fields}, which holds for every object. */
export function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}
