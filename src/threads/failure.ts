/** An error in the form in which it crosses from a worker to the main thread. */
export interface Failure {
	readonly message: string;
	/** Code that the failed library gave (SQLite's extended result code); undefined when it gave none. */
	readonly code: number | undefined;
}

/** Describes any thrown value. */
export function failureOf(error: unknown): Failure {
	if (!(error instanceof Error)) return { message: String(error), code: undefined };
	const code = "errcode" in error && typeof error.errcode === "number" ? error.errcode : undefined;
	return { message: error.message, code };
}
