/** A generated message by its properties, or a map by its keys. */
export type Fields = Record<string, unknown>;

/** Whether a value can be taken for {@link Fields}: any object. */
export function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}
