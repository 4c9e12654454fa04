import type { Attributes } from "@opentelemetry/api";
import {
	ATTR_ERROR_TYPE,
	ATTR_HTTP_REQUEST_METHOD,
	ATTR_HTTP_RESPONSE_STATUS_CODE,
	ATTR_HTTP_ROUTE,
	ATTR_RPC_METHOD,
	ATTR_RPC_SYSTEM_NAME,
} from "@opentelemetry/semantic-conventions";
import type { EndedRequest, RequestTarget } from "./ended-request.ts";

/** What stands for every method that is not known, in HTTP and RPC (OpenTelemetry, semantic conventions). */
const OTHER = "_OTHER";

/** Methods of HTTP that may become a label; a client can send any other word (RFC 9110, section 9; RFC 5789). */
const METHODS: ReadonlySet<string> = new Set("CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE".split(" "));

const SYSTEMS = { connect: "connectrpc", "grpc-web": "grpc_web", grpc: "grpc" } as const;

/** Whether the request came by RPC. */
export function isRpc({ transport }: RequestTarget): boolean {
	return transport !== "http";
}

/** Labels of a request: all out of small sets, whatever the client sent. */
export function attributesOf({ target, status, failure }: EndedRequest): Attributes {
	const { transport, method = "", route } = target;
	// An answer such as that of a probe may say that something is wrong without a failure of the request.
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

/** Name of a request's span. */
export function spanNameOf({ transport, method = "", route }: RequestTarget): string {
	if (transport !== "http") return route === undefined ? OTHER : route.replace(/^\//, "");
	const known = METHODS.has(method) ? method : "HTTP";
	return route === undefined ? known : `${known} ${route}`;
}
