import { bigint, nullable, type Row, text } from "./values.ts";

/** A text from an event, and the time by which it is ordered, in microseconds since the Unix epoch. */
export interface TimedText {
	readonly text: string;
	readonly at: bigint;
}

/** An error that an event reports. Its texts contain no secret. */
export interface ReportedError {
	readonly code: string;
	/** Empty when the event does not tell it. */
	readonly kind: string;
	/** Undefined when the event does not tell it. */
	readonly retryable: boolean | undefined;
	/** Beginning of the text. */
	readonly text: string;
}

/** The latest error of a conversation. */
export interface LastError extends ReportedError {
	readonly at: bigint;
	/** Sequence of the event. */
	readonly sequence: bigint;
}

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
