import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Limits } from "../limits.ts";

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

/** Ends a request whose response has been written, unless the client takes the response within `answerTime`. */
export function limitResponseTime(
	request: Request,
	response: Response,
	{ answerTime }: Pick<Limits, "answerTime">,
): void {
	const timeout = setTimeout(() => abandon(request, response), answerTime);
	whenGone(request, response, () => clearTimeout(timeout));
}

/** Ends a request whose client does not take the response. */
export function abandon(request: Request, response: Response): void {
	if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
	else response.destroy();
}
