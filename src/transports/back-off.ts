/** A connection whose reading can be paused. Both methods may be called at any time, also after it has closed. */
export interface PausableConnection {
	pause(): void;
	resume(): void;
}

/** Milliseconds after which a connection is resumed even without room. Equal to the Retry-After of a refusal. */
const MAX_PAUSE = 5_000;

/**
 * Pauses the reading of connections on which a request was refused. A client that retries at once, against the
 * Retry-After of the refusal, then has to wait, and its refusals do not take processor time from admitted requests.
 * When there is room, connections are resumed in the order in which they were paused; without room, after five seconds.
 */
export class BackOff {
	readonly #hasRoom: () => boolean;
	/** Paused connections in the order of their pauses, each with the timer that resumes it. */
	readonly #paused = new Map<PausableConnection, NodeJS.Timeout>();
	#scheduled = false;

	/**
	 * @param hasRoom whether the requests would be admitted that a resumed connection may send before it is paused again
	 */
	constructor(hasRoom: () => boolean) {
		this.#hasRoom = hasRoom;
	}

	/** Pauses a connection until there is room, or for five seconds. */
	pause(connection: PausableConnection): void {
		if (this.#paused.has(connection)) return;
		this.#paused.set(connection, setTimeout(() => this.#resume(connection), MAX_PAUSE).unref());
		connection.pause();
	}

	/** Resumes paused connections as long as there is room. To be called when a request has made room. */
	resumeIfRoom(): void {
		if (this.#scheduled || this.#paused.size === 0 || !this.#hasRoom()) return;
		this.#scheduled = true;
		// One connection in each turn of the event loop, so that its requests are counted before the next one is resumed.
		setImmediate(() => {
			this.#scheduled = false;
			if (!this.#hasRoom()) return;
			const [first] = this.#paused.keys();
			if (first !== undefined) this.#resume(first);
			this.resumeIfRoom();
		});
	}

	#resume(connection: PausableConnection): void {
		clearTimeout(this.#paused.get(connection));
		this.#paused.delete(connection);
		connection.resume();
	}
}
