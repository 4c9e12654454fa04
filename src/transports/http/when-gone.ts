import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";

/** What is to be called when a connection of HTTP/1.1 closes. */
const waiting = new WeakMap<Socket, Set<() => void>>();

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
		return;
	}
	if (response.closed || request.socket.destroyed) {
		gone();
		return;
	}
	// A response that waits for earlier ones of its connection does not learn that the connection closes.
	const { socket } = request;
	const others = waiting.get(socket) ?? watchSocket(socket);
	others.add(gone);
	response.once("close", () => {
		others.delete(gone);
		gone();
	});
}

function watchSocket(socket: Socket): Set<() => void> {
	const listeners = new Set<() => void>();
	waiting.set(socket, listeners);
	socket.once("close", () => {
		for (const gone of listeners) gone();
		listeners.clear();
	});
	return listeners;
}
