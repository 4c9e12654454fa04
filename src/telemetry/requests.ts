import { randomUUID } from "node:crypto";
import { ServiceError } from "../errors.ts";
import type { EndedRequest, RequestTarget } from "./ended-request.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";
import type { HeaderOf, OtlpTracing, RequestSpan } from "./otlp-tracing.ts";

/** Header, or entry of gRPC metadata, that carries the id of a request and of its answer. */
export const REQUEST_ID_HEADER = "x-request-id";

/** An id that a caller may give: short, and harmless in a line of the log. */
const GIVEN_ID = /^[\w.:+=-]{1,64}$/;

/** What each request is told to. */
export interface RequestSinks {
	readonly log: Pick<Log, "requestFailed">;
	readonly metrics: Pick<Metrics, "ended" | "violated">;
	/** Undefined when no traces are made. */
	readonly tracing?: Pick<OtlpTracing, "begin"> | undefined;
}

/** The one place where every request of every transport begins and ends. */
export class Requests {
	readonly #sinks: RequestSinks;
	readonly #open = { http: 0, grpc: 0 };

	constructor(sinks: RequestSinks) {
		this.#sinks = sinks;
	}

	/** Requests under way, by listener. */
	get open(): Readonly<Record<"http" | "grpc", number>> {
		return this.#open;
	}

	/** A request has arrived, as far as its header. Its end has to be told. */
	begin(listener: "http" | "grpc", target: RequestTarget, headerOf: HeaderOf): ObservedRequest {
		this.#open[listener] += 1;
		return new ObservedRequest(this.#sinks, target, headerOf, () => {
			this.#open[listener] -= 1;
		});
	}
}

/** One request from its header to its end. */
export class ObservedRequest {
	/** Id out of the caller's header, or a new one. Goes into the answer and the log. */
	readonly id: string;
	readonly #sinks: RequestSinks;
	readonly #span: RequestSpan | undefined;
	readonly #since = performance.now();
	readonly #onEnd: () => void;
	#target: RequestTarget;
	#caller: string | undefined;
	#bytes: number | undefined;
	#failure: string | undefined;
	#ended = false;

	constructor(sinks: RequestSinks, target: RequestTarget, headerOf: HeaderOf, onEnd: () => void) {
		const given = headerOf(REQUEST_ID_HEADER);
		this.id = given !== undefined && GIVEN_ID.test(given) ? given : randomUUID();
		this.#sinks = sinks;
		this.#target = target;
		this.#span = sinks.tracing?.begin(headerOf);
		this.#onEnd = onEnd;
	}

	/** It is known what the request asks for. */
	routed(target: Partial<RequestTarget>): void {
		this.#target = { ...this.#target, ...target };
	}

	/** The gate has admitted the holder of a key or certificate. */
	admitted(caller: string): void {
		this.#caller = caller;
	}

	/** The body or message was read: its bytes after decompression. */
	received(bytes: number): void {
		this.#bytes = bytes;
	}

	/** Does work whose calls to threads belong to the request's trace. Not for streams, which last. */
	run<Result>(work: () => Result): Result {
		return this.#span === undefined ? work() : this.#span.run(work);
	}

	/**
	 * The request failed for this reason, which goes to the log. Not for one whose client has gone.
	 *
	 * @param options.conversationId conversation that the request names. What the error names comes first
	 * @param options.silent whether the log is spared
	 */
	failed(error: unknown, options: { conversationId?: string | undefined; silent?: boolean } = {}): void {
		const { log, metrics } = this.#sinks;
		this.#failure = error instanceof ServiceError ? error.kind : "unexpected";
		for (const { type } of error instanceof ServiceError ? error.violations : []) metrics.violated(type);
		if (options.silent === true) return;
		const { transport, operation } = this.#target;
		const { conversationId } = options;
		const trace = this.#span?.traceId;
		log.requestFailed(
			{ transport, operation, requestId: this.id, traceId: trace, caller: this.#caller, conversationId },
			error,
		);
	}

	/**
	 * The request is over. Only the first call counts.
	 *
	 * @param answered whether the client was sent a whole answer
	 * @param status of an answer of HTTP
	 */
	end(answered: boolean, status?: number): void {
		if (this.#ended) return;
		this.#ended = true;
		this.#onEnd();
		const ended: EndedRequest = {
			target: this.#target,
			status: answered ? status : undefined,
			failure: this.#failure ?? (answered ? undefined : "canceled"),
			seconds: (performance.now() - this.#since) / 1000,
			bytes: this.#bytes,
		};
		this.#sinks.metrics.ended(ended);
		this.#span?.end(ended);
	}
}
