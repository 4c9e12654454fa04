import type { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import type { NewEvent } from "./events.ts";
import type { Gap, OpenGaps } from "./gaps.ts";
import type { Poster } from "./owners.ts";
import type { StoredRecord } from "./stored-record.ts";
import type { StoredUpdate } from "./updates.ts";

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
	/** Further gaps of missing events to open, unless these are stored: what stored events name. */
	readonly named?: readonly Gap[] | undefined;
	/** Effect of state updates, or of a fetched record, on the record; undefined when there are none to apply. */
	readonly effect: EventEffect | undefined;
	/** Whether the batch was fetched from the agent server instead of posted. */
	readonly isFetched?: boolean | undefined;
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
	/** The new {@link RecordState.postedAt} when a fetched record replaces the posted one; left out otherwise. */
	readonly postedAt?: bigint | undefined;
	/**
	 * When the `leaf_event_id` of the version was the leaf. Events that are later override it. Left out: those that are later
	 * than the posted record do.
	 */
	readonly leafAt?: bigint | undefined;
}

/** A version of the record that state updates produced. */
export interface RecordVersion {
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
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
	/** As {@link import("./updates.ts").AppendedUpdate.gaps}. */
	readonly gaps?: OpenGaps;
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
	 * it has no order time. Undefined when the current record is based on events alone, or there is no current record.
	 */
	readonly postedAt: bigint | undefined;
	/** Whether stored state updates that are later than the posted record may still have to be applied to it. */
	readonly hasUnappliedEvents: boolean;
	/** The current update with its record; undefined when the conversation has none. */
	readonly current: StoredUpdate | undefined;
	/** Those of the requested event ids that are already stored. */
	readonly knownIds: readonly string[];
}
