import type { Attributes } from "@opentelemetry/api";
import {
	ATTR_ERROR_TYPE,
	ATTR_HTTP_REQUEST_METHOD,
	ATTR_HTTP_RESPONSE_STATUS_CODE,
	ATTR_HTTP_ROUTE,
	ATTR_RPC_METHOD,
	ATTR_RPC_SYSTEM_NAME,
} from "@opentelemetry/semantic-conventions";

export const transports = ["http", "connect", "grpc-web", "grpc"] as const;
export type Transport = (typeof transports)[number];

/** The route or RPC that a request calls. */
export interface RequestTarget {
	readonly transport: Transport;
	/** HTTP method of a request that is not an RPC. A client can choose any text here. */
	readonly method?: string | undefined;
	/** Path of the request, without its query. A client can choose any text here. */
	readonly path: string;
	/**
	 * Path of the route with its parameters as placeholders, or path of the RPC. Undefined if no such route or RPC
	 * exists.
	 */
	readonly route?: string | undefined;
}

/** A completed request. `failure` has few possible values, so that it can become a metric label. */
export interface EndedRequest extends RequestTarget {
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

/** Returns the labels of a request. Each has few possible values, whatever the client sent. */
export function attributesOf({ transport, method = "", route, status, failure }: EndedRequest): Attributes {
	// A response, such as that of a probe, may report an error although the request itself did not fail.
	const error = failure ?? (status !== undefined && status >= 500 ? String(status) : undefined);
	const attributes: Attributes = {};
	if (transport === "http") {
		attributes[ATTR_HTTP_REQUEST_METHOD] = METHODS.has(method) ? method : OTHER;
		if (route !== undefined) attributes[ATTR_HTTP_ROUTE] = route;
		if (status !== undefined) attributes[ATTR_HTTP_RESPONSE_STATUS_CODE] = status;
	} else {
		attributes[ATTR_RPC_SYSTEM_NAME] = SYSTEMS[transport];
		attributes[ATTR_RPC_METHOD] = rpcNameOf(route);
	}
	if (error !== undefined) attributes[ATTR_ERROR_TYPE] = error;
	return attributes;
}

/** Returns the name of a request's span. */
export function spanNameOf({ transport, method = "", route }: RequestTarget): string {
	if (transport !== "http") return rpcNameOf(route);
	const known = METHODS.has(method) ? method : "HTTP";
	return route === undefined ? known : `${known} ${route}`;
}

function rpcNameOf(route: string | undefined): string {
	return route?.slice(1) ?? OTHER;
}
