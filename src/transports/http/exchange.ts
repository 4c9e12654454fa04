import { constants } from "node:http2";
import type { Socket } from "node:net";
import { cors } from "@connectrpc/connect";
import { KEY_HEADERS } from "../../access/gate.ts";
import { ServiceError, type Violation } from "../../errors.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import { REQUEST_ID_HEADER, type Requests } from "../../telemetry/requests.ts";
import type { Admission, Permit, Work } from "../admission.ts";
import { peerOf } from "../connections.ts";
import type { HttpHandler, HttpResponse, ObservedHandler, Request, Response } from "./http-listener.ts";

/** Wraps a handler: observes each request from its beginning to its end, and sends its id with the response. */
export function observed(requests: Requests, handler: ObservedHandler): HttpHandler {
	return (request, response) => {
		const { method = "", url = "" } = request;
		const target = { transport: "http", method, path: pathOf(url) } as const;
		const headerOf = (name: string): string | undefined => {
			const value = request.headers[name];
			return typeof value === "string" ? value : undefined;
		};
		const observed = requests.begin(target, headerOf, () => peerOf(request.socket));
		response.setHeader(REQUEST_ID_HEADER, observed.id);
		// A response that was not ended was cut off by the client or by the service.
		response.on("close", () => observed.end(response.writableEnded, response.statusCode));
		handler(request, response, observed);
	};
}

/** Returns the path of a request URL. It ends at the first question mark (RFC 3986, section 3.4). */
export function pathOf(url: string): string {
	const end = url.indexOf("?");
	return end === -1 ? url : url.slice(0, end);
}

/**
 * Counts a request until its response has left or its connection is gone. A client that waits for the response 100
 * before it sends the body (RFC 9110, section 10.1.1) gets it.
 */
export function enter(admission: Pick<Admission, "enter">, work: Work, request: Request, response: Response): Permit {
	const permit = admission.enter(work);
	whenGone(request, response, permit.hold());
	if (request.headers.expect !== undefined && request.httpVersion !== "1.0") {
		if (!("stream" in request)) response.setHeader("Connection", "keep-alive");
		response.writeContinue();
	}
	return permit;
}

/**
 * Calls `onGone` when the response to a request has left the process, or its connection is gone; at once if that is the
 * case already. `onGone` may be called twice.
 */
export function whenGone(request: Request, response: Response, onGone: () => void): void {
	if (isGone(request, response)) onGone();
	else if ("stream" in request) request.stream.once("close", onGone);
	else response.once("close", onGone);
}

/** Whether the response to a request has left the process, or its connection is gone. */
function isGone(request: Request, response: Response): boolean {
	if ("stream" in request) return request.stream.destroyed;
	// Node.js may have detached the socket from a request whose body was not read to its end.
	const socket: Socket | null = request.socket;
	return response.closed || socket?.destroyed === true;
}

/**
 * Signal for handlers: aborted when nobody waits for the response to a request any longer. A class, because V8 keeps each object
 * literal with an accessor, and so its request, until a collection of the whole heap.
 */
export class ClientSignal implements Pick<AbortSignal, "aborted"> {
	readonly #request: Request;
	readonly #response: Response;

	constructor(request: Request, response: Response) {
		this.#request = request;
		this.#response = response;
	}

	get aborted(): boolean {
		return isGone(this.#request, this.#response);
	}
}

/** Ends a request whose response is written, unless the client takes the response within `answerTime`. */
export function limitResponseTime(request: Request, response: Response, answerTime: number): void {
	// Most responses are small, and the system has taken them already. HTTP/2 may hold back what was written.
	if (!("stream" in request) && response.writableEnded && response.writableLength === 0) return;
	const timeout = setTimeout(() => abandon(request, response), answerTime);
	whenGone(request, response, () => clearTimeout(timeout));
}

/** Ends a request whose client does not take the response. */
export function abandon(request: Request, response: Response): void {
	if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
	else response.destroy();
}

/** A response with a status and a media type of its own. */
export interface ContentResponse {
	readonly status: number;
	readonly content: string | Buffer;
	readonly type: string;
	readonly headers?: Readonly<Record<string, string>>;
}

/**
 * Returns an error as clients see it, in the form of the specification: `detail` is a sentence, or the list of
 * violations for a record that breaks rules (`HTTPValidationError`). `retryAfter` is in seconds. Of an error other than
 * a `ServiceError` clients learn only that it happened.
 */
export function shownError(error: unknown) {
	if (!(error instanceof ServiceError)) return { status: 500, detail: "Internal error", retryAfter: undefined };
	const detail = error.kind === "invalid_record" ? error.violations.map(validationError) : error.message;
	return { status: error.answer.http, detail, retryAfter: error.answer.retryAfter };
}

/** Sends an error as a JSON object whose `detail` is that of {@link shownError}. */
export function sendError(response: HttpResponse, error: unknown): void {
	const { status, detail, retryAfter } = shownError(error);
	if (status === 401) response.setHeader("WWW-Authenticate", "APIKey");
	if (retryAfter !== undefined) response.setHeader("Retry-After", String(retryAfter));
	sendContent(response, { status, content: stringifyExactJson({ detail }), type: "application/json" });
}

function validationError({ path, part = "body", type, message, context, input }: Violation) {
	return {
		type,
		loc: [part, ...path],
		msg: message,
		...(input === undefined ? {} : { input }),
		...(context === undefined ? {} : { ctx: context }),
	};
}

/** Headers of every response with a body: what one caller may read is not kept for others, and is read as what it is. */
const HEADERS = { "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff" };

export function sendContent(response: HttpResponse, { status, content, type, headers }: ContentResponse): void {
	response.writeHead(status, {
		...HEADERS,
		...headers,
		"Content-Type": type,
		"Content-Length": Buffer.byteLength(content),
	});
	response.end(content);
}

export function sendStatus(response: HttpResponse, status: number): void {
	response.writeHead(status);
	response.end("");
}

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
