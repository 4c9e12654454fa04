/**
 * The store keeps every accepted update of every conversation, numbered by one sequence, and beside them the current
 * record of each conversation. To the store a record is bytes; what lists filter by comes from its summary. It keeps the
 * events of conversations too, numbered by a sequence of their own.
 */

import type { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { Condition } from "./condition.ts";
import type { EventCondition } from "./event-condition.ts";

/** Bytes of a record, in which no secret stands in plain text, with the versions that say how to read them. */
export interface StoredRecord {
	readonly bytes: Uint8Array;
	/** Version of the redaction that the record was stored with; a safe integer. */
	readonly redactionVersion: number;
	/** Version of the schema that the record was stored with; a safe integer. */
	readonly schemaVersion: number;
}

/** An update to be appended. The store takes the memory of its byte strings over. */
export interface NewUpdate extends Awaited {
	/** Lower-case UUID with dashes. */
	readonly conversationId: string;
	/** Time of receipt in microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
	readonly record: StoredRecord;
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
}

/** What is stored only while its sender waits. */
export interface Awaited {
	/**
	 * When the sender stops to wait for the answer, in milliseconds since the Unix epoch. What has not begun to be stored
	 * until then is refused as `unavailable`. Undefined when that is not known.
	 */
	readonly awaitedUntil?: number | undefined;
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
	/** Whether stored events may tell of the record what is later than the update: {@link LiveState.hasUnappliedEvents}. */
	readonly hasUnappliedEvents: boolean;
}

/** A stored update. */
export interface StoredUpdate extends Omit<Appended, "repeated" | "hasUnappliedEvents"> {
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly origin: UpdateOrigin;
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
	/** Encoded `ConversationSummary` of the record, with the conversation's activity as it is now. */
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
	/** Only updates that come from there; UNSPECIFIED is the same as leaving it out. */
	readonly origin?: UpdateOrigin | undefined;
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

/** Which sequences a log has. */
export interface SequenceRange {
	/** Newest sequence that was ever given; 0 when there was none. */
	readonly newest: bigint;
	/** Greatest sequence of what was pruned, as the query limits it; 0 when nothing was. */
	readonly prunedThrough: bigint;
	/** Number of the last removal of pruned entries; 0 when there was none. It grows with each removal. */
	readonly lastRemoval: bigint;
}

/** What was appended, in order of its sequence numbers: the updates, or the events. */
export interface Log<Entry, Query> {
	/** Entries in order of sequence, oldest first. */
	list(query: Query): Promise<Entry[]>;
	range(query?: RangeQuery): Promise<SequenceRange>;
	/** Calls `listener` after each commit that added entries; returns how to stop it. */
	subscribe(listener: LogListener): () => void;
}

/**
 * Is told the newest sequence of a log.
 *
 * @param isLoss whether entries after it are gone that the log had before, as when a standby took over that lacked the last
 *   commits; their sequences will be given again
 */
export type LogListener = (newest: bigint, isLoss: boolean) => void;

/** An event as it is kept: JSON text in which no secret stands in plain text. */
export interface ProtectedEvent {
	/** JSON text of the whole event, in UTF-8. */
	readonly text: Uint8Array;
	/** JSON Pointers of the secrets in the text. */
	readonly secrets: readonly string[];
	/** Version of the rules by which secrets were found; a safe integer above 0. */
	readonly redactionVersion: number;
}

/** An event to be appended. Times are microseconds since the Unix epoch. */
export interface NewEvent extends ProtectedEvent {
	/** Id of the event, unique in its conversation. */
	readonly eventId: string;
	readonly happenedAt: bigint;
	readonly kind: string;
	readonly source: string;
	/** Whether the event became the conversation's leaf. */
	readonly isLeaf: boolean;
	/** Beginning of what the event says; undefined when it says nothing. */
	readonly message: string | undefined;
}

/** A stored event. */
export interface StoredEvent {
	/** Starts at 1; gaps are possible. */
	readonly sequence: bigint;
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly happenedAt: bigint;
	readonly kind: string;
	readonly source: string;
	readonly event: ProtectedEvent | UnreadableRecord;
}

/**
 * A batch of events to be appended in one transaction. The store takes the memory of its byte strings over once the batch
 * is stored.
 */
export interface NewEvents extends Awaited {
	/** Lower-case UUID with dashes. */
	readonly conversationId: string;
	/** Time of receipt in microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
	/** In the order of the batch. Those that are stored already, by id, are passed over. */
	readonly events: readonly NewEvent[];
	/** What the events tell of the record; undefined when they tell nothing. */
	readonly live: NewLiveState | undefined;
}

/** What events that tell members of the record made of it. */
export interface NewLiveState {
	/** {@link LiveState.revision} of what it was computed from. */
	readonly expects: bigint;
	/** The revision afterwards: from 2^61 to 2^62, and unlike any other that the conversation has had. */
	readonly next: bigint;
	/** When each member was told: the caller's own JSON text. */
	readonly told: string;
	/** Undefined when no member of the record changes. */
	readonly version: LiveVersion | undefined;
}

/** A version of the record that events made. */
export interface LiveVersion {
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
	/**
	 * The members that differ from the present record, as `RecordDelta` has them, or the whole record when
	 * {@link LiveState.current} is undefined.
	 */
	readonly record: StoredRecord;
}

/** Outcome of appending a batch that is on disk. */
export interface AppendedEvents {
	/** Number of events that were not stored before. */
	readonly stored: number;
	/** Sequence of the newest event; 0 when none was added. */
	readonly newest: bigint;
	/** Sequence of the update that {@link NewEvents.live} made; undefined when it made none. */
	readonly updateSequence: bigint | undefined;
}

/** What the next version of a conversation's record is computed from. */
export interface LiveState {
	/**
	 * Changes with each posted record that becomes current, to a number below 2^61 that no conversation had before, and
	 * with each {@link NewLiveState}; 0 when there was neither.
	 */
	readonly revision: bigint;
	/** `told` of the last {@link NewLiveState}, unless a posted record became current since. */
	readonly told: string | undefined;
	/**
	 * Time by which the posted record is ordered that the current record is based on (see ordering.ts), or its arrival
	 * when it has none; undefined when the current record is based on events alone, or there is none.
	 */
	readonly postedAt: bigint | undefined;
	/** Whether a posted record became current that may be older than events that tell of the record. */
	readonly hasUnappliedEvents: boolean;
	/** The current record with its update; undefined when the conversation has none. */
	readonly current: StoredUpdate | undefined;
	/** Those of the event ids that were asked for that are stored. */
	readonly knownIds: readonly string[];
}

export interface EventQuery {
	/** Only events after this sequence. Order: by sequence, oldest first. */
	readonly after: bigint;
	/** Only events of this conversation. */
	readonly conversationId?: string | undefined;
	/** Conditions that must all hold. */
	readonly conditions?: readonly EventCondition[] | undefined;
	/** Most events to return, from 1 to 1000. */
	readonly limit: number;
	/** Stop before the texts exceed this many bytes; at least one event is always returned. */
	readonly maxBytes?: number | undefined;
}

export interface PrunePolicy {
	/** Remove history received before this time (microseconds since the Unix epoch). */
	readonly receivedBefore?: bigint | undefined;
	/** Keep at most this many updates of each conversation. */
	readonly updatesPerConversation?: number | undefined;
	/** Most updates and events to remove in this step. */
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
 *
 * A record that is given is whole, also where only what changed is stored; a current one has the conversation's newest
 * leaf.
 */
export interface Store extends AsyncDisposable {
	readonly updates: Log<StoredUpdate, UpdateQuery>;
	readonly events: Log<StoredEvent, EventQuery>;
	/** Appends an update. Resolves when it is on disk. */
	append(update: NewUpdate): Promise<Appended>;
	/**
	 * Appends a batch of events with the update that they make, in one transaction. Resolves when it is on disk.
	 *
	 * @returns undefined when the batch has a live state and the conversation's is not the expected one any more, or an
	 *   event of it that tells of the record is stored already: then nothing was written
	 */
	appendEvents(batch: NewEvents): Promise<AppendedEvents | undefined>;
	/** The state that the next live version is computed from, and which of some event ids are stored. */
	getLiveState(conversationId: string, eventIds: readonly string[]): Promise<LiveState>;
	/** Some conversations for which {@link LiveState.hasUnappliedEvents} holds; none when there is none. */
	listUnapplied(limit: number): Promise<readonly string[]>;
	/** The current record of a conversation, or the record that was current as of sequence `asOf`. */
	get(conversationId: string, asOf?: bigint): Promise<StoredUpdate | undefined>;
	listConversations(query: ConversationQuery): Promise<StoredConversation[]>;
	/**
	 * Removes history that a policy no longer keeps; returns how many updates and events it removed, fewer also while another
	 * process does it. Never removes what a current record consists of, except of a conversation that has been `deleting`
	 * since before `receivedBefore`. Its events go with it.
	 */
	prune(policy: PrunePolicy): Promise<number>;
	/** Removes at most `limit` events that were received before a time, oldest first; returns how many. */
	pruneEvents(receivedBefore: bigint, limit: number): Promise<number>;
	/** The time that {@link keepClock} was given last; undefined when it was never called. */
	clock(): Promise<bigint | undefined>;
	/** Keeps the time that retention goes by (microseconds since the Unix epoch). Resolves when it is on disk. */
	keepClock(time: bigint): Promise<void>;
	/** Resolves when the store can read and write. */
	check(): Promise<void>;
	/** Finishes what was accepted, then closes. */
	close(): Promise<void>;
}
