import type { Http2Session, Http2Stream } from "node:http2";
import type { PausableConnection } from "./back-off.ts";

const readings = new WeakMap<Http2Session, SessionReading>();

/** Returns the {@link SessionReading} of an HTTP/2 session. Each session has one. */
export function readingOf(session: Http2Session): SessionReading {
	return readings.getOrInsertComputed(session, () => new SessionReading(session));
}

/**
 * Pauses and resumes the reading of an HTTP/2 connection. While bodies of admitted requests arrive on the connection, a
 * pause does not take effect: these requests take up room until they are done.
 */
export class SessionReading implements PausableConnection {
	readonly #session: Http2Session;
	/** Number of bodies that are arriving. */
	#receiving = 0;
	#isPaused = false;

	constructor(session: Http2Session) {
		this.#session = session;
	}

	/** Keeps the connection from being paused until the body of an admitted request has arrived on a stream. */
	keepReading(stream: Http2Stream): void {
		if (stream.endAfterHeaders || stream.destroyed) return;
		this.#receiving += 1;
		let hasEnded = false;
		const end = (): void => {
			if (hasEnded) return;
			hasEnded = true;
			this.#receiving -= 1;
			if (this.#isPaused && this.#receiving === 0) this.#switch("readStop");
		};
		stream.once("end", end).once("close", end);
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
	 * Stops or starts to read the socket. Node.js reads the socket of a session through its handle, and has no public
	 * method to stop that. If the handle is not found, the connection is never paused.
	 */
	#switch(method: "readStop" | "readStart"): void {
		if (this.#session.destroyed) return;
		const handle: unknown = Reflect.get(this.#session.socket, "_handle");
		if (!isReadableHandle(handle)) return;
		handle[method]();
	}
}

/** Methods of a Node.js socket handle that control reading. */
interface ReadableHandle {
	readStop(): unknown;
	readStart(): unknown;
}

function isReadableHandle(value: unknown): value is ReadableHandle {
	return (
		typeof value === "object" &&
		value !== null &&
		"readStop" in value &&
		typeof value.readStop === "function" &&
		"readStart" in value &&
		typeof value.readStart === "function"
	);
}
