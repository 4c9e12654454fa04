import type { Failure } from "./failure.ts";

/**
 * The calls that a worker thread answers: a function from the argument to the answer for each. Arguments and answers are
 * copied by the structured clone algorithm, and a byte string takes its whole ArrayBuffer along: see `compact` in
 * src/memory.ts. Every worker answers `close`, which ends it.
 */
export interface Calls {
	close(argument: undefined): unknown;
}

export type CallName<Methods> = keyof Methods & string;
export type Argument<Method> = Method extends (argument: infer Value) => unknown ? Value : never;
export type Answer<Method> = Method extends (argument: never) => infer Value ? Value : never;

/** One call on its way to a worker. */
export interface CallMessage {
	readonly id: number;
	readonly name: string;
	readonly argument: unknown;
}

export type Outcome = { readonly value: unknown } | { readonly failure: Failure };

/** What a worker posts: once that it started, or that it could not; then the outcomes of calls. */
export type WorkerMessage =
	| { readonly kind: "started" }
	| { readonly kind: "failed"; readonly failure: Failure }
	| {
			readonly kind: "outcomes";
			readonly outcomes: readonly (Outcome & { readonly id: number })[];
			/** The groups among the calls. */
			readonly groups: readonly AnsweredGroup[];
	  };

/** Calls that a worker answered together. */
export interface AnsweredGroup {
	readonly ids: readonly number[];
	/** When the work on them began, in milliseconds of Unix time. */
	readonly startedAt: number;
	/** How long it took, in milliseconds. */
	readonly duration: number;
}

/** Size from which it costs less to hand memory over to another thread than to copy it, in bytes. */
const HANDED_OVER_FROM = 32 * 1024;

/**
 * The memory of large byte strings in a value, which `postMessage` can hand over to the other thread instead of copying
 * it. Byte strings are looked for in the value itself and in members of plain objects and arrays.
 */
export function largeBuffers(value: unknown, found: ArrayBuffer[] = []): ArrayBuffer[] {
	if (value instanceof Uint8Array) {
		const { buffer, byteLength } = value;
		const whole = buffer instanceof ArrayBuffer && byteLength === buffer.byteLength;
		if (whole && byteLength >= HANDED_OVER_FROM) found.push(buffer);
	} else if (typeof value === "object" && value !== null) {
		for (const member of Object.values(value)) if (typeof member === "object") largeBuffers(member, found);
	}
	return found;
}
