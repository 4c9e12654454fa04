import { ServiceError } from "../errors.ts";

/** An error in the form in which a worker thread sends it to the calling thread. */
export interface Failure {
	readonly message: string;
	/** Set when the worker threw a {@link ServiceError}. */
	readonly refusal: Pick<ServiceError, "kind" | "violations" | "conversationId"> | undefined;
	/** Error code of the library that failed (SQLite's extended result code); undefined when there is none. */
	readonly code: number | undefined;
}

/** Converts any thrown value to a {@link Failure}. */
export function failureOf(error: unknown): Failure {
	if (!(error instanceof Error)) return { message: String(error), refusal: undefined, code: undefined };
	const { message } = error;
	if (error instanceof ServiceError) {
		const { kind, violations, conversationId } = error;
		return { message, refusal: { kind, violations, conversationId }, code: undefined };
	}
	const code = "errcode" in error && typeof error.errcode === "number" ? error.errcode : undefined;
	return { message, refusal: undefined, code };
}

/** Restores the {@link ServiceError} that a worker threw; undefined for any other failure. */
export function refusalOf({ message, refusal }: Failure): ServiceError | undefined {
	return refusal && new ServiceError(refusal.kind, message, refusal);
}
