import { cors } from "@connectrpc/connect";
import { KEY_HEADERS } from "../../access/presented-key.ts";
import { REQUEST_ID_HEADER } from "../../telemetry/requests.ts";
import { sendStatus } from "./answer.ts";
import type { ObservedHandler } from "./http-listener.ts";

/** Seconds for which a browser may cache the response to a preflight request. Chromium caches it for no longer. */
const MAX_AGE = 7_200;

const ALLOWED_METHODS = [...cors.allowedMethods, "HEAD", "DELETE"].join(", ");
const ALLOWED_HEADERS = [
	...cors.allowedHeaders,
	...KEY_HEADERS,
	REQUEST_ID_HEADER,
	"Last-Event-ID",
	"traceparent",
	"tracestate",
].join(", ");
const EXPOSED_HEADERS = [...cors.exposedHeaders, "Retry-After", REQUEST_ID_HEADER].join(", ");

/**
 * Wraps a handler so that web pages of the given origins can call it (Fetch Standard, section 3.2, "CORS protocol"),
 * and answers their preflight requests. Requests from other origins are answered as usual, but the browser hides the
 * response from the page.
 *
 * @param origins allowed origins; `*` allows every origin
 * @param headers further headers that pages may send
 */
export function allowOrigins(
	origins: readonly string[],
	handler: ObservedHandler,
	headers: readonly string[] = [],
): ObservedHandler {
	if (origins.length === 0) return handler;
	const allowedHeaders = [ALLOWED_HEADERS, ...headers].join(", ");
	const all = origins.includes("*");
	return (request, response, observed) => {
		const { origin } = request.headers;
		response.setHeader("Vary", "Origin");
		if (origin !== undefined && (all || origins.includes(origin))) {
			response.setHeader("Access-Control-Allow-Origin", origin);
			response.setHeader("Access-Control-Expose-Headers", EXPOSED_HEADERS);
			if (request.method === "OPTIONS" && request.headers["access-control-request-method"] !== undefined) {
				response.setHeader("Access-Control-Allow-Methods", ALLOWED_METHODS);
				response.setHeader("Access-Control-Allow-Headers", allowedHeaders);
				response.setHeader("Access-Control-Max-Age", String(MAX_AGE));
				sendStatus(response, 204);
				return;
			}
		}
		handler(request, response, observed);
	};
}
