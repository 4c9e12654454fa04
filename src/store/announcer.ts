import type { ThreadLogger } from "../threads/worker-thread.ts";
import type { LogChange, LogListener } from "./sequence-log.ts";

/**
 * Notifies listeners of the newest sequence of a log when the log has grown. The results of one commit arrive together,
 * so listeners are notified once for all of them.
 */
export class Announcer {
	readonly #logger: ThreadLogger;
	readonly #listeners = new Set<LogListener>();
	#newest = 0n;
	#isScheduled = false;

	/** @param log receives the errors that listeners throw */
	constructor(log: ThreadLogger) {
		this.#logger = log;
	}

	/** The newest announced sequence; 0 when none was announced. */
	get newest(): bigint {
		return this.#newest;
	}

	/** @returns a function that ends the subscription */
	subscribe(listener: LogListener): () => void {
		// Wrapped, so that a listener that is subscribed twice has two subscriptions.
		const own: LogListener = (newest, change) => listener(newest, change);
		this.#listeners.add(own);
		return () => this.#listeners.delete(own);
	}

	announce(sequence: bigint): void {
		if (sequence <= this.#newest) return;
		this.#newest = sequence;
		if (this.#isScheduled) return;
		this.#isScheduled = true;
		queueMicrotask(() => {
			this.#isScheduled = false;
			this.#notify("added");
		});
	}

	/** Notifies the listeners that entries after `newest`, which were announced before, have been lost. */
	announceLoss(newest: bigint): void {
		this.#newest = newest;
		this.#notify("lost");
	}

	/** Notifies the listeners that stored entries have other owners now, or were erased. */
	announceRewrite(): void {
		this.#notify("rewritten");
	}

	#notify(change: LogChange): void {
		// A copy, because a listener subscribes again when what it has read is out of date.
		for (const listener of [...this.#listeners]) {
			try {
				listener(this.#newest, change);
			} catch (error) {
				this.#logger.error({ err: error }, "a listener of the store failed");
			}
		}
	}
}
