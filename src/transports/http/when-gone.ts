import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";

/**
 * Calls `gone`, perhaps twice, when the answer to a request has left the process or the connection is gone; at once
 * when that is so already.
 */
export function whenGone(
	request: IncomingMessage | Http2ServerRequest,
	response: ServerResponse | Http2ServerResponse,
	gone: () => void,
): void {
	if ("stream" in request) {
		if (request.stream.destroyed) gone();
		else request.stream.once("close", gone);
	} else if (response.closed || request.socket.destroyed) gone();
	else response.once("close", gone);
}
