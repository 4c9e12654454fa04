import type { Http2Session, Http2Stream } from "node:http2";
import type { Reading } from "./back-off.ts";

const readings = new WeakMap<Http2Session, SessionReading>();

/** How a connection of HTTP/2 is read. */
export function readingOf(session: Http2Session): SessionReading {
	return readings.getOrInsertComputed(session, () => new SessionReading(session));
}

/**
 * The reading of a connection of HTTP/2. While bodies of admitted requests arrive on it, it is read on: their requests
 * take up room until they are done.
 */
export class SessionReading implements Reading {
	readonly #session: Http2Session;
	#receiving = 0;
	#isPaused = false;

	constructor(session: Http2Session) {
		this.#session = session;
	}

	/** A request was admitted whose body arrives on this stream. */
	receives(stream: Http2Stream): void {
		if (stream.endAfterHeaders || stream.destroyed) return;
		this.#receiving += 1;
		let isOver = false;
		const over = (): void => {
			if (isOver) return;
			isOver = true;
			this.#receiving -= 1;
			if (this.#isPaused && this.#receiving === 0) this.#switch("readStop");
		};
		stream.once("end", over).once("close", over);
	}

	pause(): void {
		this.#isPaused = true;
		if (this.#receiving === 0) this.#switch("readStop");
	}

	resume(): void {
		this.#isPaused = false;
		this.#switch("readStart");
	}

	/**
	 * Node.js reads the socket of a session by its handle, and offers no way to stop that. Where the handle cannot be
	 * found, the connection is read on.
	 */
	#switch(method: "readStop" | "readStart"): void {
		if (this.#session.destroyed) return;
		const handle: unknown = Reflect.get(this.#session.socket, "_handle");
		if (!isReader(handle)) return;
		handle[method]();
	}
}

/** The part of a handle of Node.js that reads. */
interface Reader {
	readStop(): unknown;
	readStart(): unknown;
}

function isReader(value: unknown): value is Reader {
	return (
		typeof value === "object" &&
		value !== null &&
		"readStop" in value &&
		typeof value.readStop === "function" &&
		"readStart" in value &&
		typeof value.readStart === "function"
	);
}
