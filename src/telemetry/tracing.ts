import type { CallEnd } from "../threads/worker-thread.ts";
import type { EndedRequest } from "./ended-request.ts";

/** Gives the value of a header of a request by its name in lower case. */
export type HeaderOf = (name: string) => string | undefined;

/** Makes traces. What implements it is loaded only when traces are wanted. */
export interface Tracing extends AsyncDisposable {
	/** Begins the span of a request, as a child of the span that its `traceparent` header names. */
	begin(headerOf: HeaderOf): RequestSpan;
	/** A call to a thread begins, by the request that runs. Undefined when nothing is recorded. */
	called(thread: string, call: string): CallEnd | undefined;
}

/** The span of a request. */
export interface RequestSpan {
	/** Trace that the request belongs to, in hexadecimal. */
	readonly traceId: string;
	/** Does work whose calls to threads become children of the span. */
	run<Result>(work: () => Result): Result;
	end(request: EndedRequest): void;
}
