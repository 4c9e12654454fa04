import type { Transport } from "./log-fields.ts";

/** The route or RPC that a request calls. */
export interface RequestTarget {
	readonly transport: Transport;
	/** Name for the log: method and path of a route, or path of an RPC. A client can choose any text here. */
	readonly operation: string;
	/** HTTP method of a request that is not an RPC. A client can choose any text here. */
	readonly method?: string | undefined;
	/**
	 * Path of the route with its parameters as placeholders, or path of the RPC. Undefined if no such route or RPC
	 * exists.
	 */
	readonly route?: string | undefined;
}

/** A completed request. `failure` has few possible values, so that it can become a metric label. */
export interface EndedRequest {
	readonly target: RequestTarget;
	/** HTTP status of the response. Undefined for RPCs, and when no response was sent. */
	readonly status: number | undefined;
	/** Kind of the {@link ServiceError}, `unexpected`, or `canceled` if the client canceled. Undefined for success. */
	readonly failure: string | undefined;
	readonly seconds: number;
	/** Bytes of the body or message after decompression. Undefined when it was not read completely. */
	readonly bytes: number | undefined;
}
