import type { ThreadLog } from "../threads/worker-thread.ts";
import type { LogListener } from "./store.ts";

/**
 * Tells listeners of the newest sequence of a log, when it has grown. The answers of one commit arrive together; they hear
 * of them once.
 */
export class Announcer {
	readonly #log: ThreadLog;
	readonly #listeners = new Set<LogListener>();
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
	subscribe(listener: LogListener): () => void {
		// Wrapped, so that each subscription ends by itself even if a listener is given twice.
		const own: LogListener = (newest, isLoss) => listener(newest, isLoss);
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
			this.#tell(false);
		});
	}

	/** Tells that what was announced after a sequence is gone. */
	announceLoss(newest: bigint): void {
		this.#newest = newest;
		this.#tell(true);
	}

	#tell(isLoss: boolean): void {
		// A copy: a listener that hears of a loss subscribes anew.
		for (const listener of [...this.#listeners]) {
			try {
				listener(this.#newest, isLoss);
			} catch (error) {
				this.#log.error({ err: error }, "a listener of the store failed");
			}
		}
	}
}
