import { type CallSignal, ServiceError } from "../errors.ts";

/**
 * The methods of a worker as another thread calls them. Each takes one argument or none. A method without one takes no
 * signal either.
 *
 * Arguments and results cross by the structured clone algorithm. It copies the whole ArrayBuffer of a byte string: see
 * `compact` in src/memory.ts.
 */
export type Calls<Methods> = {
	/** @param signal cancels the call if it fires before the call is sent to the worker */
	readonly [Name in keyof Methods]: Methods[Name] extends () => infer Result
		? () => Promise<Awaited<Result>>
		: Methods[Name] extends (argument: infer Argument) => infer Result
			? (argument: Argument, signal?: CallSignal) => Promise<Awaited<Result>>
			: never;
};

export const CLOSE = "close";

export interface CallMessage {
	readonly id: number;
	readonly name: string;
	readonly argument: unknown;
}

export type Outcome = { readonly value: unknown } | { readonly failure: Failure };

/** A message from a worker: outcomes of calls. The first one has none and says that the worker has started. */
export interface WorkerMessage {
	readonly outcomes: (Outcome & { readonly id: number })[];
	/** The groups in which some of the calls were answered: in one transaction, for example. */
	readonly groups: AnsweredGroup[];
}

/** Calls that a worker answered together. */
export interface AnsweredGroup {
	/** Number of the calls. */
	readonly size: number;
	/** Milliseconds. */
	readonly duration: number;
}

/** Size in bytes from which transferring an ArrayBuffer to another thread costs less than copying it. */
const MIN_TRANSFERRED_BYTES = 32 * 1024;

/**
 * Returns the ArrayBuffers of large byte strings in a value, so that `postMessage` can transfer them instead of copying.
 */
export function largeBuffers(value: unknown): ArrayBuffer[] {
	return byteStringsIn(value).flatMap(({ buffer, byteLength }) => {
		const whole = buffer instanceof ArrayBuffer && byteLength === buffer.byteLength;
		return whole && byteLength >= MIN_TRANSFERRED_BYTES ? [buffer] : [];
	});
}

/** Returns the byte strings in a value: itself, or the members of objects and arrays at any depth. */
export function byteStringsIn(value: unknown, found: Uint8Array[] = []): Uint8Array[] {
	if (value instanceof Uint8Array) found.push(value);
	else if (typeof value === "object" && value !== null)
		for (const member of Object.values(value)) if (typeof member === "object") byteStringsIn(member, found);
	return found;
}

/** An error in the form in which a worker thread sends it to the calling thread. */
export interface Failure {
	readonly message: string;
	/** Set when the worker threw a {@link ServiceError}. */
	readonly refusal: Pick<ServiceError, "kind" | "violations" | "conversationId"> | undefined;
	/** Error code of the library that failed (SQLite's extended result code); undefined when there is none. */
	readonly code: number | undefined;
}

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
