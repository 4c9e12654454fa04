import type { ThreadLog } from "../threads/worker-thread.ts";

/**
 * Tells listeners of the newest sequence of a log, when it has grown. The answers of one commit arrive together; they hear
 * of them once.
 */
export class Announcer {
	readonly #log: ThreadLog;
	readonly #listeners = new Set<(newest: bigint) => void>();
	#newest = 0n;
	#announcing = false;

	/** @param log told of listeners that fail */
	constructor(log: ThreadLog) {
		this.#log = log;
	}

	/** The newest sequence that was announced; 0 when none was. */
	get newest(): bigint {
		return this.#newest;
	}

	/** Returns how to stop it. */
	subscribe(listener: (newest: bigint) => void): () => void {
		// Wrapped, so that each subscription ends by itself even if a listener is given twice.
		const own = (newest: bigint) => listener(newest);
		this.#listeners.add(own);
		return () => this.#listeners.delete(own);
	}

	announce(sequence: bigint): void {
		if (sequence <= this.#newest) return;
		this.#newest = sequence;
		if (this.#announcing) return;
		this.#announcing = true;
		queueMicrotask(() => {
			this.#announcing = false;
			for (const listener of this.#listeners) {
				try {
					listener(this.#newest);
				} catch (error) {
					this.#log.error({ err: error }, "a listener of the store failed");
				}
			}
		});
	}
}
