import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Admission, Work } from "../admission.ts";
import type { Reading } from "../back-off.ts";
import type { GiveUp, Permit } from "../permits.ts";
import { readingOf } from "../session-reading.ts";
import { whenGone } from "./when-gone.ts";

/** Connections that end with a refusal. */
const ending = new WeakSet<Socket>();

/**
 * Counts a request until its answer has left or its connection is gone. The connection of one that is refused is left
 * unread for some time. A refused request that waits for the answers to others of its connection of HTTP/1.1 ends the
 * connection: what was sent behind it is not looked at. One that is given up while its body arrives is cut off, which
 * also frees what has arrived.
 *
 * @param failed is told why a request is given up
 * @throws ServiceError as {@link Admission.enter} does
 */
export function enter(
	admission: Pick<Admission, "enter">,
	work: Work,
	request: IncomingMessage | Http2ServerRequest,
	response: ServerResponse | Http2ServerResponse,
	failed: GiveUp,
): Permit {
	const session = "stream" in request ? request.stream.session : undefined;
	const reading = session === undefined ? undefined : readingOf(session);
	const giveUp: GiveUp = (error) => {
		failed(error);
		if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
		else request.socket.destroy();
	};
	const permit = admission.enter(work, "stream" in request ? reading : new RequestReading(request, response), giveUp);
	if ("stream" in request) reading?.receives(request.stream);
	whenGone(request, response, permit.hold());
	return permit;
}

/** Whether a connection ends with a refusal, so that no further request on it is to be answered. */
export function isEnding(socket: Socket): boolean {
	return ending.has(socket);
}

/** The reading of a connection of HTTP/1.1 after one of its requests. */
class RequestReading implements Reading {
	readonly #request: IncomingMessage;
	readonly #response: ServerResponse | Http2ServerResponse;
	#isPaused = false;

	constructor(request: IncomingMessage, response: ServerResponse | Http2ServerResponse) {
		this.#request = request;
		this.#response = response;
	}

	pause(): void {
		const { socket } = this.#request;
		// Node.js gives a response its connection when the one before has left.
		if (this.#response.socket === null) {
			ending.add(socket);
			this.#response.setHeader("Connection", "close");
			socket.pause();
			return;
		}
		this.#isPaused = true;
		const pause = (): void => {
			if (this.#isPaused) socket.pause();
		};
		// The rest of the body is still to be read.
		this.#response.once("close", () => (this.#request.complete ? pause() : this.#request.once("end", pause)));
	}

	resume(): void {
		if (!this.#isPaused) return;
		this.#isPaused = false;
		this.#request.socket.resume();
	}
}
