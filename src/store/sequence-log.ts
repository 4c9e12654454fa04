import type { ThreadLogger } from "../threads/worker-thread.ts";

/** The tables of the logs. Each has sequence numbers of its own and a column `received_at`. */
export type LogTable = "updates" | "events";

/** The newest sequences of both logs. */
export type NewestSequences = Readonly<Record<LogTable, bigint>>;

/** The updates, or the events, in order of their sequence numbers. */
export interface SequenceLog<Entry, Query> {
	/** Returns entries in order of sequence, oldest first. */
	list(query: Query): Promise<Entry[]>;
	range(query?: RangeQuery): Promise<SequenceRange>;
	/**
	 * Calls `listener` when commits have added entries, changed their owners or erased them; several commits can share a call.
	 *
	 * @returns a function that ends the subscription
	 */
	subscribe(listener: LogListener): () => void;
}

/**
 * What a listener is told of: new entries; the loss of the entries after the newest sequence, for example in a failover
 * to a standby that lacked the last commits, so that their sequence numbers will be used again; or that stored entries
 * have other owners now, or were erased.
 */
export type LogChange = "added" | "lost" | "rewritten";

/** Receives the newest sequence of a log. */
export type LogListener = (newest: bigint, change: LogChange) => void;

export interface RangeQuery {
	/** Consider only the pruned entries of this conversation. */
	readonly conversationId?: string | undefined;
	/** Consider only the pruned entries of conversations of this owner. */
	readonly owner?: string | undefined;
	/** Consider only conversations that lost entries in a removal after the one with this number. */
	readonly afterRemoval?: bigint | undefined;
}

/** Which sequence numbers a log has used and pruned. */
export interface SequenceRange {
	/** Largest sequence that was ever assigned or skipped; 0 when there was none. */
	readonly newest: bigint;
	/** Largest sequence of the pruned entries that the query considers; 0 when there are none. */
	readonly prunedThrough: bigint;
	/** Number of the last removal of pruned entries; 0 when there was none. It grows with each removal. */
	readonly lastRemoval: bigint;
}

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
