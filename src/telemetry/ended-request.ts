import type { Attributes } from "@opentelemetry/api";
import {
	ATTR_ERROR_TYPE,
	ATTR_HTTP_REQUEST_METHOD,
	ATTR_HTTP_RESPONSE_STATUS_CODE,
	ATTR_HTTP_ROUTE,
	ATTR_RPC_METHOD,
	ATTR_RPC_SYSTEM_NAME,
} from "@opentelemetry/semantic-conventions";
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

/** Value for an unknown method in HTTP and RPC (OpenTelemetry semantic conventions). */
const OTHER = "_OTHER";

/** HTTP methods that may become a label (RFC 9110, section 9; RFC 5789). A client can send any other word. */
const METHODS: ReadonlySet<string> = new Set("CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE".split(" "));

const SYSTEMS = { connect: "connectrpc", "grpc-web": "grpc_web", grpc: "grpc" } as const;

/** Returns whether the request is an RPC. */
export function isRpc({ transport }: RequestTarget): boolean {
	return transport !== "http";
}

/** Returns the labels of a request. Each has few possible values, whatever the client sent. */
export function attributesOf({ target, status, failure }: EndedRequest): Attributes {
	const { transport, method = "", route } = target;
	// A response, such as that of a probe, may report an error although the request itself did not fail.
	const error = failure ?? (status !== undefined && status >= 500 ? String(status) : undefined);
	return {
		...(transport === "http"
			? {
					[ATTR_HTTP_REQUEST_METHOD]: METHODS.has(method) ? method : OTHER,
					...(route !== undefined && { [ATTR_HTTP_ROUTE]: route }),
					...(status !== undefined && { [ATTR_HTTP_RESPONSE_STATUS_CODE]: status }),
				}
			: {
					[ATTR_RPC_SYSTEM_NAME]: SYSTEMS[transport],
					[ATTR_RPC_METHOD]: route === undefined ? OTHER : route.replace(/^\//, ""),
				}),
		...(error !== undefined && { [ATTR_ERROR_TYPE]: error }),
	};
}

/** Returns the name of a request's span. */
export function spanNameOf({ transport, method = "", route }: RequestTarget): string {
	if (transport !== "http") return route === undefined ? OTHER : route.replace(/^\//, "");
	const known = METHODS.has(method) ? method : "HTTP";
	return route === undefined ? known : `${known} ${route}`;
}
