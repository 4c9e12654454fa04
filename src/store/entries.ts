import type { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import type { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { EventCondition } from "./condition.ts";
import type { Poster } from "./owners.ts";
import type { EventContent } from "./text-index.ts";
import type { StoredRecord, Unreadable } from "./values.ts";

/** Updates and events: what is appended, what is kept of it, and what reads ask for. */

/**
 * The parts of a summary from which an update is planned, so that the plan need not decode the summary. A time or an id is
 * undefined if the record has none.
 */
export interface RecordFacts {
	readonly status: ConversationExecutionStatus;
	/** Times in microseconds since the Unix epoch. */
	readonly createdAt: bigint | undefined;
	readonly updatedAt: bigint | undefined;
	/** Id of the conversation of which it is a fork. */
	readonly source: string | undefined;
	readonly parent: string | undefined;
}

/** An update to append. The store takes ownership of its byte strings: the caller must not use them afterwards. */
export interface NewUpdate {
	/** Lower-case UUID with dashes. */
	readonly conversationId: string;
	/** Time of receipt in microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
	readonly record: StoredRecord;
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
	readonly facts: RecordFacts;
	/** Id of the last event according to the record; undefined when it names none. */
	readonly leaf: string | undefined;
	/** Undefined when the sender is not known. */
	readonly poster?: Poster | undefined;
	/**
	 * Set for a record that was fetched from the agent server. It is stored only if the conversation has no record or an
	 * older one, or begins again with this one. Otherwise it counts as a duplicate.
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
}

/**
 * A stored update. Times are microseconds since the Unix epoch. An update of change ERASED has the result of `idDigest` in
 * place of the id, and neither a summary nor a record.
 */
export interface StoredUpdate extends Omit<AppendedUpdate, "duplicate" | "hasUnappliedEvents"> {
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

interface LogQuery {
	/** Only entries after this sequence. Order: by sequence, oldest first. */
	readonly after: bigint;
	readonly conversationId?: string | undefined;
	readonly owner?: string | undefined;
	/** Maximum number of entries to return, from 1 to 1000. */
	readonly limit: number;
	/** Maximum number of bytes of the returned records or texts. At least one entry is returned, whatever its size. */
	readonly maxBytes?: number | undefined;
}

export interface UpdateQuery extends LogQuery {
	/** Only updates of this origin. UNSPECIFIED and undefined stand for every origin. */
	readonly origin?: UpdateOrigin | undefined;
	readonly withRecords: boolean;
}

/** An event as it is stored: JSON text without secrets in plain text. */
export interface ProtectedEvent {
	/** JSON text of the whole event, in UTF-8. */
	readonly text: Uint8Array;
	/** JSON Pointers (RFC 6901) of the secrets in the text that were encrypted or redacted when it arrived. */
	readonly secrets: readonly string[];
	/** Version of the rules that found the secrets; a safe integer above 0. */
	readonly redactionVersion: number;
}

/** An error that an event reports. Its texts contain no secret. */
export interface ReportedError {
	readonly code: string;
	/** Empty when the event does not tell it. */
	readonly kind: string;
	/** Undefined when the event does not tell it. */
	readonly retryable: boolean | undefined;
	/** Beginning of the text. */
	readonly text: string;
}

/** An event to append. Times are microseconds since the Unix epoch. */
export interface NewEvent extends ProtectedEvent {
	/** Id of the event, unique in its conversation. */
	readonly eventId: string;
	readonly happenedAt: bigint;
	/** The later instant of a local time that occurs twice, when `happenedAt` is the first one; left out of other times. */
	readonly laterAt?: bigint | undefined;
	readonly kind: string;
	readonly source: string;
	/** Whether the event becomes the conversation's leaf; false for a state update, which sets members of the record. */
	readonly isLeaf: boolean;
	/** Beginning of the event's message text; undefined when it has none. */
	readonly message: string | undefined;
	/** Id of the response of a model that the event shows, in its stored form (`responseKey`); undefined without one. */
	readonly llmResponseId: string | undefined;
	/** The error that the event reports; left out when it reports none. */
	readonly error?: ReportedError | undefined;
	/** Id of the event that it follows; left out when it names none. */
	readonly parentId?: string | undefined;
	/** Id of the last event, according to the state that it reports; left out when it reports none. */
	readonly reportedLeaf?: string | undefined;
	/** The other columns of `text` when a store has compressed it (`RecordColumn`); left out when it has not. */
	readonly packed?: { readonly unpackedSize: number | null; readonly checksum: number } | undefined;
}

/** The times of an update, in microseconds of Unix time. */
export interface UpdateTimes {
	readonly createdAt: bigint | undefined;
	readonly updatedAt: bigint | undefined;
	/** When the latest of the conversation's events happened, with those that made the update. */
	readonly lastActivityAt: bigint | undefined;
}

/** A stored event. Times are microseconds since the Unix epoch. */
export interface StoredEvent {
	/** Starts at 1; gaps are possible. */
	readonly sequence: bigint;
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly happenedAt: bigint;
	readonly kind: string;
	readonly source: string;
	/** Who posted the event; undefined when it is not known. */
	readonly sender: string | undefined;
	/** POSTED, or RECONCILED for an event that was fetched from the agent server. */
	readonly origin: UpdateOrigin;
	/** Owner of the conversation now. */
	readonly owner: string | undefined;
	readonly event: ProtectedEvent | Unreadable;
}

export interface EventQuery extends LogQuery {
	/** Only events before this sequence. */
	readonly before?: bigint | undefined;
	/** Whether the newest event comes first. Default: the oldest. */
	readonly newestFirst?: boolean | undefined;
	/** Conditions that must all hold. */
	readonly conditions?: readonly EventCondition[] | undefined;
}

/**
 * A batch of events to append in one transaction. When it is stored, the store takes ownership of its byte strings: the
 * caller must not use them afterwards.
 */
export interface NewEvents {
	/** Lower-case UUID with dashes. */
	readonly conversationId: string;
	/** Time of receipt in microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
	/** Undefined for what the service itself does, and when the sender is not known. */
	readonly poster?: Poster | undefined;
	/** In the order of the batch. Events whose id is already stored are skipped. */
	readonly events: readonly NewEvent[];
	/** Effect of state updates on the record; undefined when there are none to apply. */
	readonly effect: EventEffect | undefined;
	/** Whether the batch was fetched from the agent server instead of posted. */
	readonly isFetched?: boolean | undefined;
	/** What is indexed of each of the events; left out if it is to be taken from the stored ones. The store does not read it. */
	readonly indexed?: readonly EventContent[] | undefined;
}

/** Effect of state updates on the record state of a conversation. */
export interface EventEffect {
	/** {@link RecordState.revision} of the state from which it was computed. */
	readonly expects: bigint;
	/** The revision afterwards: from 2^61 to 2^62, and different from all earlier ones of the conversation. */
	readonly next: bigint;
	/** JSON text with the time of the last state update of each member. The store does not read it. */
	readonly memberTimes: string;
	/** Undefined when no member of the record changes. */
	readonly version: RecordVersion | undefined;
}

/** A version of the record that state updates produced. */
export interface RecordVersion {
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
	readonly facts: RecordFacts;
	/** A delta over the current record (see record-delta.ts), or the whole record when there is no current one. */
	readonly record: StoredRecord;
	/** When the state update happened that set the status; left out when none has. Microseconds since the Unix epoch. */
	readonly statusAt?: bigint | undefined;
	/** When the last run began that the state updates report, also if they report its end; left out when they report none. */
	readonly runStartedAt?: bigint | undefined;
}

/** Result of an append of a batch whose data is on disk. */
export interface AppendedEvents {
	/** Number of events that were not stored before. */
	readonly stored: number;
	/** Sequence of the last event that was added; 0 when none was. */
	readonly newest: bigint;
	/** Sequence of the update for {@link EventEffect.version}; undefined when there was no version to write. */
	readonly updateSequence: bigint | undefined;
	/** Forks with gaps that events of the batch may close: they are to be judged again, by a batch without events. Left out without any. */
	readonly forks?: readonly string[];
	/** Change of that update; left out when there is none. */
	readonly updateChange?: UpdateChange;
}

/** The state from which the next version of a conversation's record is computed. */
export interface RecordState {
	/**
	 * Identifies the state. A posted record that becomes current sets it to a number below 2^61 that no conversation had
	 * before; {@link EventEffect.next} replaces it. Without a record it is minus the number of events, because the first
	 * record is made from all state updates.
	 */
	readonly revision: bigint;
	/** That of the last {@link EventEffect}; undefined when a posted record became current since, or there is none. */
	readonly memberTimes: string | undefined;
	/**
	 * Order time (see ordering.ts) of the posted record that the current record is based on, or its time of receipt when
	 * it has no order time. For a fetched record, the time of the state that it shows (see head.ts). Undefined when the current
	 * record is based on events alone, or there is no current record.
	 */
	readonly postedAt: bigint | undefined;
	/** Whether stored state updates that are later than the posted record may still have to be applied to it. */
	readonly hasUnappliedEvents: boolean;
	/** Time of the latest event, also of one that arrived before others; undefined without events. */
	readonly lastEventAt?: bigint | undefined;
	/** The current update with its record; undefined when the conversation has none. */
	readonly current: StoredUpdate | undefined;
	/** Those of the requested event ids that are already stored. */
	readonly knownIds: readonly string[];
}
