import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Admission, Stay, Work } from "../admission.ts";
import { whenGone } from "./when-gone.ts";

/** How long a connection of HTTP/1.1 is not read after a request on it was refused, in milliseconds. */
const PAUSE = 1_000;

/** Connections that end with a refusal. */
const ending = new WeakSet<Socket>();

/**
 * Counts a request until its answer has left or its connection is gone.
 *
 * A client that sends again at once after a refusal, although it is told to wait, would keep the main thread busy with
 * refusals. So its connection of HTTP/1.1 is not read for a second afterwards. A refused request that waits for the
 * answers to others of its connection ends the connection: what was sent behind it is not looked at.
 *
 * @throws ServiceError as {@link Admission.enter} does
 */
export function enter(
	admission: Pick<Admission, "enter">,
	work: Work,
	request: IncomingMessage | Http2ServerRequest,
	response: ServerResponse | Http2ServerResponse,
): Stay {
	try {
		const stay = admission.enter(work);
		whenGone(request, response, stay.hold());
		return stay;
	} catch (error) {
		if (!("stream" in request)) slowDown(request, response);
		throw error;
	}
}

/** Whether a connection ends with a refusal, so that no further request on it is to be answered. */
export function isEnding(socket: Socket): boolean {
	return ending.has(socket);
}

function slowDown(request: IncomingMessage, response: ServerResponse | Http2ServerResponse): void {
	const { socket } = request;
	// Node.js gives a response its connection when the one before has left.
	if (response.socket === null) {
		ending.add(socket);
		response.setHeader("Connection", "close");
		socket.pause();
		return;
	}
	const pause = (): void => {
		socket.pause();
		setTimeout(() => socket.resume(), PAUSE).unref();
	};
	// The rest of the body is still to be read.
	response.once("close", () => (request.complete ? pause() : request.once("end", pause)));
}
