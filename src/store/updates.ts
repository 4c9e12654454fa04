import type { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { OpenGaps } from "./gaps.ts";
import type { Poster } from "./owners.ts";
import type { StoredRecord, Unreadable } from "./stored-record.ts";

/** The updates of the store: what is appended, what is kept of it, and what reads ask for. */

/** An update to append. The store takes ownership of its byte strings: the caller must not use them afterwards. */
export interface NewUpdate {
	/** Lower-case UUID with dashes. */
	readonly conversationId: string;
	/** Time of receipt in microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
	readonly record: StoredRecord;
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
	/** Undefined when the sender is not known. */
	readonly poster?: Poster | undefined;
	/**
	 * Set for a record that was fetched from the agent server. It is stored only if the conversation has no record, or
	 * begins again with this one. Otherwise it counts as a duplicate: its members are taken one by one, see `EventEffect`.
	 */
	readonly isFetched?: boolean | undefined;
}

/** Result of an append whose data is on disk. */
export interface AppendedUpdate {
	/** Sequence number of the update. For a duplicate, that of the stored update. Starts at 1; gaps are possible. */
	readonly sequence: bigint;
	/** Whether the record duplicates the newest posted update of its conversation. Nothing was written then. */
	readonly duplicate: boolean;
	readonly change: UpdateChange;
	/** Whether the update became the current one: see `decide` in ordering.ts. */
	readonly current: boolean;
	/** `RecordState.hasUnappliedEvents` of the conversation after the append. */
	readonly hasUnappliedEvents: boolean;
	/** The gaps of the conversation after the append; left out without any, and for a duplicate. */
	readonly gaps?: OpenGaps;
}

/**
 * A stored update. Times are microseconds since the Unix epoch. An update of change ERASED has the result of `idDigest` in
 * place of the id, and neither a summary nor a record.
 */
export interface StoredUpdate extends Omit<AppendedUpdate, "duplicate" | "hasUnappliedEvents" | "gaps"> {
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly origin: UpdateOrigin;
	/** Sequence of the update that was current before this one; undefined for the first update of a conversation. */
	readonly previousSequence: bigint | undefined;
	/** Who posted the record, or the events that made the update; undefined when it is not known. */
	readonly sender: string | undefined;
	/** Owner of the conversation now. */
	readonly owner: string | undefined;
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
	/** Undefined when the query did not ask for records, and for an erasure. */
	readonly record: StoredRecord | Unreadable | undefined;
}

export interface UpdateQuery {
	/** Only updates after this sequence. Order: by sequence, oldest first. */
	readonly after: bigint;
	/** Only updates of this conversation. */
	readonly conversationId?: string | undefined;
	/** Only updates of conversations of this owner. */
	readonly owner?: string | undefined;
	/** Only updates of this origin. UNSPECIFIED and undefined stand for every origin. */
	readonly origin?: UpdateOrigin | undefined;
	/** Maximum number of updates to return, from 1 to 1000. */
	readonly limit: number;
	/** Maximum number of bytes of the returned records. At least one update is returned, whatever its size. */
	readonly maxBytes?: number | undefined;
	readonly withRecords: boolean;
}
