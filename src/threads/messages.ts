import type { Packed } from "./bytes.ts";
import type { Failure } from "./failure.ts";

/** Several requests, sent while the worker was busy with the ones before. */
export interface Batch<Request> {
	readonly requests: readonly Request[];
	readonly packed: Packed;
}

/** Outcome of one request. Bytes are those of a successful answer. */
export type Answer = { readonly value: unknown; readonly packed?: Packed } | { readonly failure: Failure };

/** What a worker posts; answers come in the order of the requests. */
export type WorkerMessage =
	| { readonly kind: "ready" }
	| { readonly kind: "failed"; readonly failure: Failure }
	| { readonly kind: "answers"; readonly answers: readonly Answer[] };
