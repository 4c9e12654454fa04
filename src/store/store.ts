/**
 * The store keeps every accepted update of every conversation, numbered by one sequence, and beside them the current
 * record of each conversation. To the store a record is bytes; what lists filter by comes from its summary.
 */

import type { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import type { Condition } from "./condition.ts";

/** Bytes of a record, in which no secret stands in plain text, with the versions that say how to read them. */
export interface StoredRecord {
	readonly bytes: Uint8Array;
	/** Version of the redaction that the record was stored with; a safe integer. */
	readonly redactionVersion: number;
	/** Version of the schema that the record was stored with; a safe integer. */
	readonly schemaVersion: number;
}

/** An update to be appended. The store takes the memory of its byte strings over. */
export interface NewUpdate {
	/** Lower-case UUID with dashes. */
	readonly conversationId: string;
	/** Time of receipt in microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
	readonly record: StoredRecord;
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
}

/** Outcome of an append that is on disk. */
export interface Appended {
	/** Sequence number of the update; for a repetition that of the update that it repeats. Starts at 1; gaps are possible. */
	readonly sequence: bigint;
	/** Whether the record was already stored as the newest update of its conversation, so that nothing was written. */
	readonly repeated: boolean;
	readonly change: UpdateChange;
	/** Whether the update became the current record; false for one that is older than it. */
	readonly current: boolean;
}

/** A stored update. */
export interface StoredUpdate extends Omit<Appended, "repeated"> {
	readonly conversationId: string;
	readonly receivedAt: bigint;
	/** Sequence of the update that was current before this one; undefined for the first one of a conversation. */
	readonly previousSequence: bigint | undefined;
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
	/** Undefined when the query did not ask for records. */
	readonly record: StoredRecord | UnreadableRecord | undefined;
}

/** A conversation with its current record, as lists give it. */
export interface StoredConversation {
	readonly conversationId: string;
	/** Sequence of the current update. */
	readonly sequence: bigint;
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
	/** Undefined when the query did not ask for records. */
	readonly record: StoredRecord | UnreadableRecord | undefined;
}

/** A record that cannot be read from the disk, or is not what was written to it. */
export interface UnreadableRecord {
	/** What the engine says of it, for the log. */
	readonly unreadable: string;
}

export interface ConversationQuery {
	/** Conditions that must all hold. */
	readonly conditions: readonly Condition[];
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

export interface RangeQuery {
	/** Look at what was pruned of this conversation only. */
	readonly conversationId?: string | undefined;
	/** Look only at what was pruned after the removal with this number. */
	readonly afterRemoval?: bigint | undefined;
}

/** Which sequences the store has. */
export interface SequenceRange {
	/** Newest sequence that was ever given to an update; 0 when there was none. */
	readonly newest: bigint;
	/** Greatest sequence of what was pruned, as the query limits it; 0 when nothing was. */
	readonly prunedThrough: bigint;
	/** Number of the last removal of pruned updates; 0 when there was none. It grows with each removal. */
	readonly lastRemoval: bigint;
}

export interface PrunePolicy {
	/** Remove history received before this time (microseconds since the Unix epoch). */
	readonly receivedBefore?: bigint | undefined;
	/** Keep at most this many updates of each conversation. */
	readonly updatesPerConversation?: number | undefined;
	/** Most updates to remove in this step. */
	readonly limit: number;
}

/**
 * Tells whether two stored records are the same record. An engine asks it about a record that may repeat the newest one
 * of its conversation and has other bytes, because map entries have no order and equal secrets are encrypted differently.
 */
export type IsSameRecord = (stored: Uint8Array, arriving: Uint8Array) => Promise<boolean>;

/**
 * A store engine. Failures are {@link import("../errors.ts").ServiceError}s: `unavailable` when the database as a whole
 * cannot be read or written, `internal` when it fails at one record.
 */
export interface Store extends AsyncDisposable {
	/** Appends an update. Resolves when it is on disk. */
	append(update: NewUpdate): Promise<Appended>;
	/** The current record of a conversation, or the record that was current as of sequence `asOf`. */
	get(conversationId: string, asOf?: bigint): Promise<StoredUpdate | undefined>;
	listConversations(query: ConversationQuery): Promise<StoredConversation[]>;
	listUpdates(query: UpdateQuery): Promise<StoredUpdate[]>;
	range(query?: RangeQuery): Promise<SequenceRange>;
	/** Calls `listener` with the newest sequence after each commit that added updates; returns how to stop it. */
	subscribe(listener: (newest: bigint) => void): () => void;
	/** Removes history that a policy no longer keeps; returns how many updates it removed. Never removes a current record, except of a conversation that has been `deleting` since before `receivedBefore`. */
	prune(policy: PrunePolicy): Promise<number>;
	/** Resolves when the store can read and write. */
	check(): Promise<void>;
	/** Finishes what was accepted, then closes. */
	close(): Promise<void>;
}
