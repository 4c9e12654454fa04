/** A connection that may be left unread. Both calls may come at any time, also when the connection is gone. */
export interface Reading {
	pause(): void;
	resume(): void;
}

/** How long a connection is left unread at most, in milliseconds: as long as a refusal asks to wait. */
const LONGEST_PAUSE = 5_000;

/**
 * Leaves connections unread on which a request was refused, so that refusals do not take the processor time of what was
 * admitted: a client that sends on at once, although it is told to wait, waits for its turn. A connection is read on
 * when there is room, the one that has waited longest first, or after five seconds.
 */
export class BackOff {
	readonly #hasRoom: () => boolean;
	/** Those that wait, the first one first, with what ends their longest pause. */
	readonly #waiting = new Map<Reading, NodeJS.Timeout>();
	#scheduled = false;

	/** @param hasRoom whether what a connection may send until it is paused again would be admitted */
	constructor(hasRoom: () => boolean) {
		this.#hasRoom = hasRoom;
	}

	/** Leaves a connection unread for some time. */
	hold(connection: Reading): void {
		if (this.#waiting.has(connection)) return;
		this.#waiting.set(connection, setTimeout(() => this.#readOn(connection), LONGEST_PAUSE).unref());
		connection.pause();
	}

	/** Something has been done, so there may be room. */
	roomed(): void {
		if (this.#scheduled || this.#waiting.size === 0 || !this.#hasRoom()) return;
		this.#scheduled = true;
		// One in each turn of the event loop: what the one before has sent is counted by then.
		setImmediate(() => {
			this.#scheduled = false;
			if (!this.#hasRoom()) return;
			const [first] = this.#waiting.keys();
			if (first !== undefined) this.#readOn(first);
			this.roomed();
		});
	}

	#readOn(connection: Reading): void {
		clearTimeout(this.#waiting.get(connection));
		this.#waiting.delete(connection);
		connection.resume();
	}
}
