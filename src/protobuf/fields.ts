/** A generated message as an object of its properties, or a map field as an object of its entries. */
export type Fields = Record<string, unknown>;

/** Returns whether a value can be read as {@link Fields}, which holds for every object. */
export function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}
