import type { Packed } from "./bytes.ts";
import type { Failure } from "./failure.ts";

/** Several requests, sent while the worker was busy with the ones before, each with a list of byte strings. */
export interface Batch<Request> {
	readonly requests: readonly Request[];
	readonly packed: Packed;
}

/** A request with the byte strings that belong to it. */
export interface Received<Request> {
	readonly request: Request;
	readonly parts: readonly Uint8Array<ArrayBuffer>[];
}

/** Outcome of one request. */
export type Outcome = { readonly value: unknown } | { readonly failure: Failure };

/** Outcome of one request, with the byte strings that belong to it. */
export type Answer = Outcome & { readonly parts?: readonly Uint8Array[] };

/** What a worker posts; outcomes come in the order of the requests, each with a list of byte strings. */
export type WorkerMessage =
	| { readonly kind: "ready" }
	| { readonly kind: "failed"; readonly failure: Failure }
	| { readonly kind: "answers"; readonly outcomes: readonly Outcome[]; readonly packed: Packed };
