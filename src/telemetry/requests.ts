import { randomUUID } from "node:crypto";
import { ServiceError } from "../errors.ts";
import type { Logger, RequestInfo } from "./log.ts";
import type { EndedRequest, Metrics, RequestTarget } from "./metrics.ts";
import type { HeaderOf, OtlpTracing, RequestSpan } from "./otlp.ts";

/** Header, or gRPC metadata entry, that carries the request id in requests and responses. */
export const REQUEST_ID_HEADER = "x-request-id";

/** A request id that is accepted from a caller: short and harmless in a log line. */
const ACCEPTED_ID = /^[\w.:+=-]{1,64}$/;

interface RequestSinks {
	readonly log: Pick<Logger, "requestFailed" | "requestEnded">;
	readonly metrics: Pick<Metrics, "ended" | "violated" | "unauthenticated">;
	readonly tracing?: Pick<OtlpTracing, "begin"> | undefined;
}

type Listener = "http" | "grpc";

function listenerOf({ transport }: RequestTarget): Listener {
	return transport === "grpc" ? "grpc" : "http";
}

/** Observes every request of every transport, from its beginning to its end. */
export class Requests {
	readonly sinks: RequestSinks;
	/** Number of requests under way, by listener. */
	readonly open: Record<Listener, number> = { http: 0, grpc: 0 };
	/** Called when a post is refused whose sender the gate has admitted. */
	onRefused: ((refused: RefusedRequest) => void) | undefined;

	constructor(sinks: RequestSinks) {
		this.sinks = sinks;
	}

	/**
	 * Begins a request whose header has arrived. The caller must call {@link ObservedRequest.end}.
	 *
	 * @param peerOf returns the address and port of the client, if they are known
	 */
	begin(target: RequestTarget, headerOf: HeaderOf, peerOf?: () => string | undefined): ObservedRequest {
		return new ObservedRequest(this, target, headerOf, peerOf);
	}
}

/** The holder of a key or certificate. */
export interface Caller {
	readonly name: string;
	readonly owner: string | undefined;
}

interface RefusedRequest {
	readonly caller: Caller;
	/** Path of the route or RPC; undefined when there is no such one. */
	readonly route: string | undefined;
	readonly error: unknown;
	/** Conversation that the request names; undefined when it is not known. */
	readonly conversationId: string | undefined;
	/** Bytes of the body; undefined when it was not read. */
	readonly size: number | undefined;
	/** The body of a post; its memory may have been released. */
	readonly body: Uint8Array | undefined;
}

/** One request from its header to its end. */
export class ObservedRequest {
	/** Id from the caller's header, or a new one. It appears in the response and in the log. */
	readonly id: string;
	readonly #requests: Requests;
	readonly #span: RequestSpan | undefined;
	readonly #since = performance.now();
	readonly #peerOf: (() => string | undefined) | undefined;
	#target: RequestTarget;
	#conversationId: string | undefined;
	#caller: Caller | undefined;
	#isPost = false;
	#bytes: number | undefined;
	#body: Uint8Array | undefined;
	#failure: string | undefined;
	#ended = false;

	constructor(requests: Requests, target: RequestTarget, headerOf: HeaderOf, peerOf?: () => string | undefined) {
		const given = headerOf(REQUEST_ID_HEADER);
		this.id = given !== undefined && ACCEPTED_ID.test(given) ? given : randomUUID();
		this.#requests = requests;
		requests.open[listenerOf(target)] += 1;
		this.#target = target;
		this.#span = requests.sinks.tracing?.begin(headerOf);
		this.#peerOf = peerOf;
	}

	/** Records the route or RPC that the request calls, once it is known. */
	routed(route: string, transport = this.#target.transport): void {
		this.#target = { ...this.#target, transport, route };
	}

	/**
	 * Records that the gate admitted the holder of a key or certificate.
	 *
	 * @param scope the scope that the request needs
	 */
	admitted(caller: Caller, scope: string | undefined): void {
		this.#caller = caller;
		this.#isPost = scope === "ingest";
	}

	/** Records that the body or message was read, after decompression. */
	received(body: Uint8Array): void {
		this.#bytes = body.byteLength;
		if (this.#isPost) this.#body = body;
	}

	/** Runs `work`, whose calls to threads belong to the request's trace. Not for streams, which last too long. */
	run<Result>(work: () => Result): Result {
		return this.#span === undefined ? work() : this.#span.run(work);
	}

	/**
	 * Records that the request failed, and logs the error. Not to be called when the client has gone.
	 *
	 * @param conversationId conversation that the request names. The error's own conversation takes precedence
	 */
	failed(error: unknown, conversationId?: string): void {
		const { log, metrics } = this.#requests.sinks;
		this.#failure = error instanceof ServiceError ? error.kind : "unexpected";
		for (const { type } of error instanceof ServiceError ? error.violations : []) metrics.violated(type);
		if (this.#caller === undefined && this.#failure === "unauthenticated")
			metrics.unauthenticated(this.#target.transport);
		if (this.#isPost && this.#caller !== undefined)
			this.#requests.onRefused?.({
				caller: this.#caller,
				route: this.#target.route,
				error,
				conversationId: (error instanceof ServiceError ? error.conversationId : undefined) ?? conversationId,
				size: this.#bytes,
				body: this.#body,
			});
		this.#conversationId = conversationId;
		log.requestFailed(this.#info(), error);
	}

	/**
	 * Ends the request. Only the first call has an effect.
	 *
	 * @param answered whether a whole response was sent to the client
	 * @param status HTTP status of the response
	 */
	end(answered: boolean, status?: number): void {
		if (this.#ended) return;
		this.#ended = true;
		this.#requests.open[listenerOf(this.#target)] -= 1;
		const ended: EndedRequest = {
			...this.#target,
			status: answered ? status : undefined,
			failure: this.#failure ?? (answered ? undefined : "canceled"),
			seconds: (performance.now() - this.#since) / 1000,
			bytes: this.#bytes,
		};
		this.#requests.sinks.metrics.ended(ended);
		this.#requests.sinks.log.requestEnded(() => this.#info(), ended);
		this.#span?.end(ended);
	}

	#info(): RequestInfo {
		const { transport, method, path, route } = this.#target;
		return {
			transport,
			operation: transport === "http" ? `${method} ${route ?? path}` : (route ?? path),
			caller: this.#caller?.name,
			// Of a request without a valid key.
			peer: this.#caller === undefined ? this.#peerOf?.() : undefined,
			requestId: this.id,
			traceId: this.#span?.traceId,
			conversationId: this.#conversationId,
		};
	}
}
