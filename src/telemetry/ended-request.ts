import type { Transport } from "./log-fields.ts";

/** What a request asks for. */
export interface RequestTarget {
	readonly transport: Transport;
	/** As the log names it: method and path of a route, or the path of an RPC. A client may have made it up. */
	readonly operation: string;
	/** Method of an HTTP request that is no RPC. A client may have made it up. */
	readonly method?: string | undefined;
	/** Path of a route with its open segments, or of an RPC; undefined when there is no such route or RPC. */
	readonly route?: string | undefined;
}

/** A request that is over. All texts are out of small sets. */
export interface EndedRequest {
	readonly target: RequestTarget;
	/** Status of the answer; undefined for RPCs, and when there was no answer. */
	readonly status: number | undefined;
	/** Kind of the {@link ServiceError}, `unexpected`, or `canceled` by the client; undefined for success. */
	readonly failure: string | undefined;
	readonly seconds: number;
	/** Bytes of the body or message after decompression; undefined when it was not read as a whole. */
	readonly bytes: number | undefined;
}
