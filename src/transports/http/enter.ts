import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Admission, Work } from "../admission.ts";
import type { PausableConnection } from "../back-off.ts";
import type { OnEvicted, Permit } from "../permits.ts";
import { readingOf } from "../session-reading.ts";
import { whenGone } from "./when-gone.ts";

/** HTTP/1.1 connections that are closed after the refusal of one of their requests. */
const ending = new WeakSet<Socket>();

/**
 * Counts a request until its response has left or its connection is gone. When the request is refused, the reading of
 * its connection is paused for some time. If a refused HTTP/1.1 request waits behind other responses of its connection,
 * the connection is closed after the refusal, and requests that were sent behind it are ignored. A request that is
 * evicted while its body arrives is cut off, which also frees the part of the body that has arrived.
 *
 * @param reportEviction called with the reason when the request is evicted
 * @throws ServiceError as {@link Admission.enter} does
 */
export function enter(
	admission: Pick<Admission, "enter">,
	work: Work,
	request: IncomingMessage | Http2ServerRequest,
	response: ServerResponse | Http2ServerResponse,
	reportEviction: OnEvicted,
): Permit {
	const session = "stream" in request ? request.stream.session : undefined;
	const reading = session === undefined ? undefined : readingOf(session);
	const onEvicted: OnEvicted = (error) => {
		reportEviction(error);
		if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
		else request.socket.destroy();
	};
	const permit = admission.enter(work, "stream" in request ? reading : new Http1Reading(request, response), onEvicted);
	if ("stream" in request) reading?.keepReading(request.stream);
	whenGone(request, response, permit.hold());
	return permit;
}

/** Whether a connection is closed after a refusal, so that further requests on it are ignored. */
export function isEnding(socket: Socket): boolean {
	return ending.has(socket);
}

/** Pauses and resumes the reading of an HTTP/1.1 connection after one of its requests. */
class Http1Reading implements PausableConnection {
	readonly #request: IncomingMessage;
	readonly #response: ServerResponse | Http2ServerResponse;
	#isPaused = false;

	constructor(request: IncomingMessage, response: ServerResponse | Http2ServerResponse) {
		this.#request = request;
		this.#response = response;
	}

	pause(): void {
		const { socket } = this.#request;
		// Node.js assigns the socket to a response when the response before it has left.
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
		// The rest of the request body has to be read first.
		this.#response.once("close", () => (this.#request.complete ? pause() : this.#request.once("end", pause)));
	}

	resume(): void {
		if (!this.#isPaused) return;
		this.#isPaused = false;
		this.#request.socket.resume();
	}
}
