/**
 * The store keeps every accepted update of every conversation, numbered by one sequence, and beside them the
 * current record of each conversation. It knows records only as bytes with the columns to filter by.
 */

import type { EncodedUpdate } from "./encoded-update.ts";

/** What an update did to its conversation, judged against the record that was current before it. */
export type Change = "started" | "paused" | "resumed" | "deleted" | "updated";

/** Columns of a record that lists filter by. Times are microseconds since the Unix epoch. */
export interface RecordColumns {
	/** Execution status as its JSON name, such as `idle`. */
	readonly status: string;
	/** Kind of the agent, such as `ACPAgent`. */
	readonly agentKind: string;
	/** Model to show; empty when unknown. */
	readonly model: string;
	readonly title: string | undefined;
	readonly parentId: string | undefined;
	readonly createdAt: bigint | undefined;
	readonly updatedAt: bigint | undefined;
	readonly tags: Readonly<Record<string, string>>;
}

/** An update to be appended. */
export interface NewUpdate {
	/** Lower-case UUID with dashes. */
	readonly conversationId: string;
	/**
	 * Digest of the record: two updates of one conversation with the same digest are the same update, and have the same
	 * columns. Undefined: they are the same if their records are, byte by byte.
	 */
	readonly digest: Uint8Array | undefined;
	/** Says how the record is protected, to whoever protected it; a safe integer that is given back with the record. */
	readonly seal: number;
	/** The record, protected (redacted or encrypted) and encoded. The store takes the memory over. */
	readonly record: Uint8Array;
	/** Encoded summary of the record. */
	readonly summary: Uint8Array;
	readonly columns: RecordColumns;
	/** Time of receipt in microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
}

/** Outcome of an append that is on disk. */
export interface Appended {
	/** Sequence number of the update; of the first one when this one repeats it. Starts at 1, gaps are possible. */
	readonly sequence: bigint;
	/** Whether the store already held this update, in which case nothing was written. */
	readonly repeated: boolean;
	readonly change: Change;
	/** Whether the update became the current record; false for one that is older than it. */
	readonly current: boolean;
}

/** A stored update. */
export interface StoredUpdate extends Appended {
	readonly conversationId: string;
	readonly receivedAt: bigint;
	/** Sequence of the update that was current before this one; undefined for the first one of a conversation. */
	readonly previousSequence: bigint | undefined;
	/** Encoded record; undefined when the query did not ask for records. */
	readonly record: Uint8Array | undefined;
	/** Seal of the record; undefined without the record. */
	readonly seal: number | undefined;
}

/** A conversation's current record, as lists give it. */
export interface StoredConversation {
	readonly conversationId: string;
	/** Sequence of the current update. */
	readonly sequence: bigint;
	readonly summary: Uint8Array;
	/** Encoded record; undefined when the query did not ask for records. */
	readonly record: Uint8Array | undefined;
}

/** Conditions that all must hold; an undefined one always holds. Ranges include `from` and exclude `to`. */
export interface ConversationFilter {
	readonly status?: string | undefined;
	readonly agentKind?: string | undefined;
	readonly model?: string | undefined;
	readonly parentId?: string | undefined;
	readonly tags?: Readonly<Record<string, string>> | undefined;
	/** Only conversations that have a tag with this key, whatever its value. */
	readonly tagKey?: string | undefined;
	readonly createdFrom?: bigint | undefined;
	readonly createdTo?: bigint | undefined;
	readonly updatedFrom?: bigint | undefined;
	readonly updatedTo?: bigint | undefined;
	/** Text that the title contains, compared without regard to ASCII case. */
	readonly titleContains?: string | undefined;
}

export interface ConversationQuery {
	readonly filter: ConversationFilter;
	/** Only conversations whose current sequence is below this one: the continuation of a page. */
	readonly before?: bigint | undefined;
	/** Most conversations to return, from 1 to 1000. Order: newest current update first. */
	readonly limit: number;
	readonly withRecords: boolean;
}

export interface UpdateQuery {
	/** Only updates after this sequence. Order: by sequence, oldest first. */
	readonly after: bigint;
	/** Only updates of this conversation. */
	readonly conversationId?: string | undefined;
	/** Most updates to return, from 1 to 1000. */
	readonly limit: number;
	/** Stop before the answer's records exceed this many bytes; at least one update is always returned. */
	readonly maxBytes?: number | undefined;
	readonly withRecords: boolean;
}

/** First and last sequence that a reader can ask for. */
export interface SequenceRange {
	/** Oldest sequence that is certainly not pruned: a reader that resumes after `oldest - 1` misses nothing. */
	readonly oldest: bigint;
	/** Newest stored sequence; 0 when nothing was ever stored. */
	readonly newest: bigint;
}

export interface PrunePolicy {
	/** Remove history received before this time (microseconds since the Unix epoch). */
	readonly receivedBefore?: bigint | undefined;
	/** Keep at most this many updates of each conversation. */
	readonly updatesPerConversation?: number | undefined;
	/** Most updates to remove in this step. */
	readonly limit: number;
}

/** A store engine. Every failure to read or write is a {@link import("../errors.ts").ServiceError} `unavailable`. */
export interface Store extends AsyncDisposable {
	/** Appends an update. Resolves when it is on disk. */
	append(update: EncodedUpdate): Promise<Appended>;
	/** The current record of a conversation, or the record that was current as of sequence `asOf`. */
	get(conversationId: string, asOf?: bigint): Promise<StoredUpdate | undefined>;
	listConversations(query: ConversationQuery): Promise<StoredConversation[]>;
	listUpdates(query: UpdateQuery): Promise<StoredUpdate[]>;
	range(): Promise<SequenceRange>;
	/** Calls `listener` with the newest sequence after each commit that added updates; returns how to stop it. */
	subscribe(listener: (newest: bigint) => void): () => void;
	/** Removes history that a policy no longer keeps; returns how many updates it removed. Never removes a current record, except of a conversation that has been `deleting` since before `receivedBefore`. */
	prune(policy: PrunePolicy): Promise<number>;
	/** Resolves when the store can read and write. */
	check(): Promise<void>;
	/** Finishes what was accepted, then closes. */
	close(): Promise<void>;
}
