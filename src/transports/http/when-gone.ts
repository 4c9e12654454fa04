import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Limits } from "../limits.ts";

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;

/**
 * Calls `gone`, perhaps twice, when the answer to a request has left the process or the connection is gone; at once
 * when that is so already.
 */
export function whenGone(request: Request, response: Response, gone: () => void): void {
	if (isGone(request, response)) gone();
	else if ("stream" in request) request.stream.once("close", gone);
	else response.once("close", gone);
}

/** Whether the answer to a request has left the process, or the connection is gone. */
function isGone(request: Request, response: Response): boolean {
	if ("stream" in request) return request.stream.destroyed;
	// Of a request whose body was not read to its end, Node.js may have taken the connection.
	const socket: Socket | null = request.socket;
	return response.closed || socket?.destroyed === true;
}

/** Fires when nobody waits for the answer to a request any longer. */
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

/** Ends a request whose answer has been given, if the client does not take it in time. */
export function limitAnswer(request: Request, response: Response, { answerTime }: Pick<Limits, "answerTime">): void {
	const late = setTimeout(() => {
		if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
		else response.destroy();
	}, answerTime);
	whenGone(request, response, () => clearTimeout(late));
}
