import type { LastError } from "./activity-facts.ts";
import { bigint, nullable, type Row, text } from "./values.ts";

/** The columns of an activity with the latest error: `error_at`, `error_sequence`, and `error` with the rest as JSON. */

/** Returns the value of the column `error`: code, kind, text, and whether a retry can succeed or null. */
export function errorJson({ code, kind, text: detail, retryable = null }: ErrorOrNull): string {
	return JSON.stringify([code, kind, detail, retryable]);
}

type ErrorOrNull = Omit<LastError, "retryable"> & { readonly retryable?: boolean | null | undefined };

/**
 * Reads the latest error of an activity.
 *
 * @param readText reads a text column, in the engine's encoding
 */
export function errorFrom(row: Row, readText: (value: unknown) => string): LastError | undefined {
	const json = nullable(readText, row.error);
	if (json === undefined) return undefined;
	const values: unknown = JSON.parse(json);
	const [code, kind, detail, retryable]: unknown[] = Array.isArray(values) ? values : [];
	return {
		code: text(code),
		kind: text(kind),
		text: text(detail),
		retryable: typeof retryable === "boolean" ? retryable : undefined,
		at: bigint(row.error_at),
		sequence: bigint(row.error_sequence),
	};
}
