import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import { REQUEST_ID_HEADER, type Requests } from "../../telemetry/requests.ts";
import type { Admission, Permit, Work } from "../admission.ts";
import { peerOf } from "../connections.ts";
import type { Limits } from "../limits.ts";
import type { HttpHandler, ObservedHandler } from "./http-listener.ts";

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
 *
 * @throws ServiceError as {@link Admission.enter} does
 */
export function enter(
	admission: Pick<Admission, "enter">,
	work: Work,
	request: IncomingMessage | Http2ServerRequest,
	response: ServerResponse | Http2ServerResponse,
): Permit {
	const permit = admission.enter(work);
	whenGone(request, response, permit.hold());
	if (request.headers.expect !== undefined && request.httpVersion !== "1.0") {
		if (!("stream" in request)) response.setHeader("Connection", "keep-alive");
		response.writeContinue();
	}
	return permit;
}

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;

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

/** Signal for handlers: aborted when nobody waits for the response to a request any longer. */
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
export function limitResponseTime(
	request: Request,
	response: Response,
	{ answerTime }: Pick<Limits, "answerTime">,
): void {
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
