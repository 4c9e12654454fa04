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
