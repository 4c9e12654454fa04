import type { Failure } from "./failure.ts";

/**
 * The calls that a worker thread answers, each as a function from the argument to the result. Arguments and results
 * cross by the structured clone algorithm. It copies the whole ArrayBuffer of a byte string: see `compact` in
 * src/memory.ts. Every worker answers `close`, which ends it.
 */
export interface Calls {
	close(argument: undefined): unknown;
}

export type CallName<Methods> = keyof Methods & string;
export type Argument<Method> = Method extends (argument: infer Value) => unknown ? Value : never;
export type Answer<Method> = Method extends (argument: never) => infer Value ? Value : never;

/** A call as it is sent to a worker. */
export interface CallMessage {
	readonly id: number;
	readonly name: string;
	readonly argument: unknown;
}

export type Outcome = { readonly value: unknown } | { readonly failure: Failure };

/** A message from a worker: first whether it could start, then the outcomes of calls. */
export type WorkerMessage =
	| { readonly kind: "started" }
	| { readonly kind: "failed"; readonly failure: Failure }
	| {
			readonly kind: "outcomes";
			readonly outcomes: readonly (Outcome & { readonly id: number })[];
			/** The groups in which some of the calls were answered. */
			readonly groups: readonly AnsweredGroup[];
	  };

/** Calls that a worker answered together. */
export interface AnsweredGroup {
	readonly ids: readonly number[];
	/** When the work on the group began, in milliseconds of Unix time. */
	readonly startedAt: number;
	/** Duration of that work, in milliseconds. */
	readonly duration: number;
}

/** Size in bytes from which transferring an ArrayBuffer to another thread costs less than copying it. */
const MIN_TRANSFERRED_BYTES = 32 * 1024;

/**
 * Returns the ArrayBuffers of large byte strings in a value, so that `postMessage` can transfer them instead of
 * copying. Searches the value itself and the members of objects and arrays, at any depth.
 */
export function largeBuffers(value: unknown, found: ArrayBuffer[] = []): ArrayBuffer[] {
	if (value instanceof Uint8Array) {
		const { buffer, byteLength } = value;
		const whole = buffer instanceof ArrayBuffer && byteLength === buffer.byteLength;
		if (whole && byteLength >= MIN_TRANSFERRED_BYTES) found.push(buffer);
	} else if (typeof value === "object" && value !== null) {
		for (const member of Object.values(value)) if (typeof member === "object") largeBuffers(member, found);
	}
	return found;
}
