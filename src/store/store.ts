/**
 * The interface of the store. A store keeps two logs, each with its own sequence numbers: the updates of all
 * conversations and the events of all conversations. An update comes from a posted record or from state updates, which
 * are events that set members of the record. The store also keeps the current record of each conversation. It stores
 * records as encoded bytes and does not decode their values; lists filter by the summary of a record.
 */

import type { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { CallSignal } from "../call-signal.ts";
import type { AccessKeyTable } from "./access-keys.ts";
import type { ReportedError } from "./activity-facts.ts";
import type { Condition, ListOrder } from "./condition.ts";
import type { Derivation, DerivationStep } from "./derivation.ts";
import type { Erased, EraseRequest, Erasure } from "./erasure.ts";
import type { EventCondition } from "./event-condition.ts";
import type { Gap, OpenGaps } from "./gaps.ts";
import type { OwnerAssignment } from "./owners.ts";
import type { RefusedPostTable } from "./refused-posts.ts";
import type { NewRefusals, SenderFigures } from "./senders.ts";
import type { TextIndex } from "./text-index.ts";
import type { StoredUsage, UsageCorrection } from "./usage-plan.ts";
import type { ModelUsage, UsagePeriod, UsageQuery, UsageReport } from "./usage-report.ts";

/** An encoded record without secrets in plain text, and the versions of the rules that it was encoded by. */
export interface StoredRecord {
	readonly bytes: Uint8Array;
	/** Version of the redaction rules, a safe integer; 0 when it holds ciphertexts, or parts of different versions. */
	readonly redactionVersion: number;
	/** Version of the schema, a safe integer; 0 when it holds parts of different versions. */
	readonly schemaVersion: number;
}

/** Who posts. */
export interface Poster {
	/** Name of the access key or client certificate that the post was made with. */
	readonly sender: string;
	/** Owner of what the sender posts; undefined for none. */
	readonly owner: string | undefined;
}

/** Who posted a conversation first. It stays the same, unless the conversation is assigned to another owner. */
export interface ConversationOrigin {
	/** Undefined for a conversation that was first stored when the service kept no senders. */
	readonly sender: string | undefined;
	/** Undefined for no owner. */
	readonly owner: string | undefined;
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
	/** Undefined when the sender is not known. */
	readonly poster?: Poster | undefined;
	/**
	 * Set for a record that was fetched from the agent server. It is stored only if the conversation has no record, or
	 * begins again with this one. Otherwise it counts as a duplicate: its members are taken one by one, see `EventEffect`.
	 */
	readonly isFetched?: boolean | undefined;
}

/** Result of an append whose data is on disk. */
export interface Appended {
	/** Sequence number of the update. For a duplicate, that of the stored update. Starts at 1; gaps are possible. */
	readonly sequence: bigint;
	/** Whether the record duplicates the newest posted update of its conversation. Nothing was written then. */
	readonly duplicate: boolean;
	readonly change: UpdateChange;
	/** Whether the update became the current one: see `decide` in ordering.ts. */
	readonly current: boolean;
	/** {@link RecordState.hasUnappliedEvents} of the conversation after the append. */
	readonly hasUnappliedEvents: boolean;
	/** The gaps of the conversation after the append; left out without any, and for a duplicate. */
	readonly gaps?: OpenGaps;
}

/**
 * A stored update. Times are microseconds since the Unix epoch. An update of change ERASED has the result of `idDigest` in
 * place of the id, and neither a summary nor a record.
 */
export interface StoredUpdate extends Omit<Appended, "duplicate" | "hasUnappliedEvents" | "gaps"> {
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

/** A conversation with its current record, as lists return it. */
export interface StoredConversation {
	/** The value by which the list is ordered; undefined in the order `updated`. Only `cost` has a fraction. */
	readonly orderValue?: bigint | number | undefined;
	readonly conversationId: string;
	/** Sequence of the current update. */
	readonly sequence: bigint;
	/** Encoded `ConversationSummary` of the record, with the present activity of the conversation. */
	readonly summary: Uint8Array;
	/** Undefined when the query did not ask for records. */
	readonly record: StoredRecord | Unreadable | undefined;
}

/** Stands for a record or an event that cannot be read from the disk, or differs from what was written. */
export interface Unreadable {
	/** The engine's error message, for the log. */
	readonly unreadable: string;
}

export interface ConversationQuery {
	/** Conditions that must all hold. */
	readonly conditions: readonly Condition[];
	/** Default: `updated`. */
	readonly order?: ListOrder | undefined;
	/** Only conversations whose current update has a sequence below this one: where the next page begins. */
	readonly before?: bigint | undefined;
	/** Of another order than `updated`: the value at which the next page begins. Set if `before` is. */
	readonly beforeValue?: bigint | number | undefined;
	/** Maximum number of conversations to return, from 1 to 1000. */
	readonly limit: number;
	readonly withRecords: boolean;
}

/** What conversations are counted by: a value of each, or the keys or the values of tags. Undefined: all together. */
export type CountGroup =
	| { readonly by: "executionStatus" | "agentKind" | "model" | "sender" | "owner" | "tagKey" }
	| { readonly by: "tag"; readonly key: string };

export interface CountQuery {
	/** Conditions that must all hold. */
	readonly conditions: readonly Condition[];
	readonly group: CountGroup | undefined;
	/** Maximum number of counts to return. */
	readonly limit: number;
}

/** Number of conversations with a value: a text, or the number of a status. */
export interface StoredCount {
	/** Empty where a conversation has no value. A long one may be cut, with a digest in place of the rest. */
	readonly value: string | number;
	readonly count: number;
}

export interface StoredCounts {
	/** The largest first. Empty without a group. */
	readonly counts: readonly StoredCount[];
	/** Number of conversations that meet the conditions. */
	readonly total: number;
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

/** An event as it is stored: JSON text without secrets in plain text. */
export interface ProtectedEvent {
	/** JSON text of the whole event, in UTF-8. */
	readonly text: Uint8Array;
	/** JSON Pointers (RFC 6901) of the secrets in the text that were encrypted or redacted when it arrived. */
	readonly secrets: readonly string[];
	/** Version of the rules that found the secrets; a safe integer above 0. */
	readonly redactionVersion: number;
}

/** An event to append. Times are microseconds since the Unix epoch. */
export interface NewEvent extends ProtectedEvent {
	/** Id of the event, unique in its conversation. */
	readonly eventId: string;
	readonly happenedAt: bigint;
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

/** What a step has done that compresses texts of stored events. */
export interface CompactedStep {
	/** All events up to this sequence have been examined. */
	readonly through: bigint;
	readonly newest: bigint;
	/** Number of texts that were compressed. */
	readonly compressed: number;
	readonly hasMore: boolean;
}

/** What was returned of the free pages of a database. */
export interface ReturnedSpace {
	readonly returnedBytes: bigint;
	/** Size of the pages that are still free. */
	readonly freeBytes: bigint;
	/** Whether the database can return more of them. */
	readonly hasMore: boolean;
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
}

/** Result of an append of a batch whose data is on disk. */
export interface AppendedEvents {
	/** Number of events that were not stored before. */
	readonly stored: number;
	/** Sequence of the last event that was added; 0 when none was. */
	readonly newest: bigint;
	/** Sequence of the update for {@link EventEffect.version}; undefined when there was no version to write. */
	readonly updateSequence: bigint | undefined;
	/** As {@link Appended.gaps}. */
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

export interface EventQuery {
	/** Only events after this sequence. Order: by sequence. */
	readonly after: bigint;
	/** Only events before this sequence. */
	readonly before?: bigint | undefined;
	/** Whether the newest event comes first. Default: the oldest. */
	readonly newestFirst?: boolean | undefined;
	/** Only events of this conversation. */
	readonly conversationId?: string | undefined;
	/** Only events of conversations of this owner. */
	readonly owner?: string | undefined;
	/** Conditions that must all hold. */
	readonly conditions?: readonly EventCondition[] | undefined;
	/** Maximum number of events to return, from 1 to 1000. */
	readonly limit: number;
	/** Maximum number of bytes of the returned texts. At least one event is returned, whatever its size. */
	readonly maxBytes?: number | undefined;
}

export interface PrunePolicy {
	/** Remove history that was received before this time (microseconds since the Unix epoch). */
	readonly receivedBefore?: bigint | undefined;
	/** Keep at most this many updates of each conversation. */
	readonly updatesPerConversation?: number | undefined;
	/** Maximum number of updates and events to remove. The end of a deleted conversation may exceed it by 1. */
	readonly limit: number;
}

/**
 * Resolves to whether two encoded records are the same. Engines call it for a possible duplicate whose bytes differ
 * from those of the stored record: map entries have no order, and equal secrets have different ciphertexts.
 */
export type IsSameRecord = (stored: Uint8Array, arriving: Uint8Array) => Promise<boolean>;

/**
 * A store engine. Its methods fail with a {@link import("../errors.ts").ServiceError}: `unavailable` when the database
 * as a whole cannot be read or written, `internal` when only this request failed.
 *
 * Reads return whole records, also where the database holds a delta. The current record of a conversation has its
 * newest `leaf_event_id`.
 */
export interface Store extends AsyncDisposable {
	readonly updates: SequenceLog<StoredUpdate, UpdateQuery>;
	readonly events: SequenceLog<StoredEvent, EventQuery>;
	readonly accessKeys: AccessKeyTable;
	readonly refusedPosts: RefusedPostTable;
	readonly textIndex: TextIndex;
	/**
	 * Appends an update, unless it is a duplicate: {@link Appended.duplicate}. Resolves when it is on disk.
	 *
	 * @param signal if it has fired when the engine looks at it, the append fails with `unavailable`. SQLite's engine looks
	 *   before it sends the update to its writer thread, which checks the deadline again. PostgreSQL's engine looks when it
	 *   has locked the conversation.
	 */
	append(update: NewUpdate, signal?: CallSignal): Promise<Appended>;
	/**
	 * Appends a batch of events and the update that they cause, in one transaction. Resolves when both are on disk.
	 *
	 * @param signal as for `append`
	 * @returns undefined when nothing was written, because the batch has an effect and the conversation's revision is
	 *   not the expected one, or one of the batch's state updates is already stored
	 */
	appendEvents(batch: NewEvents, signal?: CallSignal): Promise<AppendedEvents | undefined>;
	/**
	 * Gives conversations an owner in one transaction, with all that is stored of them. Those that have another owner keep
	 * it, unless their ids are given. A conversation that was removed belongs to the owner of its usage.
	 *
	 * @returns the number of changed conversations; below the limit when no more are left
	 */
	assignOwner(assignment: OwnerAssignment): Promise<number>;
	/**
	 * Erases a conversation in one transaction: its record, history and events, and all that was derived from them but sums
	 * of usage. Other conversations forget it as their parent, as their source and as their child. What stays is an
	 * {@link Erasure}, and what {@link Erased} names.
	 *
	 * @returns undefined when there is no such conversation, or it has another owner than the requested one
	 */
	erase(request: EraseRequest): Promise<Erased | undefined>;
	/**
	 * Removes from the files what erasures removed from the tables. What cannot be removed at once, because a backup or an
	 * export reads the database, goes later.
	 */
	purge(): Promise<void>;
	/** Returns what is kept of a conversation that was erased; undefined when it was not, or has been stored again. */
	getErasure(conversationId: string): Promise<Erasure | undefined>;
	/** Returns who posted first to a conversation, and its owner; undefined when nothing of it is stored. */
	getOrigin(conversationId: string): Promise<ConversationOrigin | undefined>;
	/** Returns the gaps of a conversation, in any order. */
	listGaps(conversationId: string): Promise<readonly Gap[]>;
	/** Returns the record state of a conversation, and which of the event ids are already stored. */
	getRecordState(conversationId: string, eventIds: readonly string[]): Promise<RecordState>;
	/** Returns the ids of at most `limit` conversations for which {@link RecordState.hasUnappliedEvents} is true. */
	listUnapplied(limit: number): Promise<readonly string[]>;
	/**
	 * Returns the current update of a conversation, or the one that was current as of sequence `asOf`; undefined when
	 * there is none, or it has been pruned.
	 */
	get(conversationId: string, asOf?: bigint): Promise<StoredUpdate | undefined>;
	/** Returns those of the events that exist, in any order. */
	readEvents(sequences: readonly bigint[]): Promise<readonly StoredEvent[]>;
	listConversations(query: ConversationQuery): Promise<StoredConversation[]>;
	countConversations(query: CountQuery): Promise<StoredCounts>;
	/**
	 * Removes history that a policy no longer keeps. The current update of a conversation, and the base if it is a delta,
	 * are kept, unless the conversation has been `deleting` since before `receivedBefore`. Then all of the conversation
	 * is removed, including its events.
	 *
	 * @returns number of removed updates and events; below the limit only when all conversations were examined, or
	 *   another process is pruning
	 */
	prune(policy: PrunePolicy): Promise<number>;
	/** Removes at most `limit` events that were received before a time, oldest first. Returns the number removed. */
	pruneEvents(receivedBefore: bigint, limit: number): Promise<number>;
	/**
	 * Adds refusals to those of the same periods, and repeated posts to the totals of their senders. Removes periods that
	 * are too old. Resolves when it is on disk.
	 */
	addRefusals(refusals: NewRefusals): Promise<void>;
	/**
	 * Returns the totals of the senders, their refusals and their running conversations.
	 *
	 * @param owner only those of this owner. If undefined, those of all owners and of none
	 */
	listSenders(owner?: string): Promise<SenderFigures>;
	/** Returns the time that {@link saveRetentionTime} saved last; undefined when it was never called. */
	getRetentionTime(): Promise<bigint | undefined>;
	/** Saves the time of retention (microseconds since the Unix epoch). Resolves when it is on disk. */
	saveRetentionTime(time: bigint): Promise<void>;
	/** Sums up usage: see usage-report.ts. */
	reportUsage(query: UsageQuery): Promise<UsageReport>;
	/**
	 * Returns a range that has all usage, of whole days (UTC); undefined without any usage.
	 *
	 * @param owner only usage of conversations of this owner
	 */
	getUsageRange(owner?: string): Promise<UsagePeriod | undefined>;
	/** Returns the usage of each model, over all time and all conversations. */
	listModelUsage(): Promise<readonly ModelUsage[]>;
	/** Returns what is stored of the usage of a conversation. */
	getUsage(conversationId: string): Promise<StoredUsage>;
	/**
	 * Corrects the usage of a conversation in one transaction. Resolves when it is on disk.
	 *
	 * @returns whether it was corrected; false when usage has been counted, or its owner has changed, since it was read
	 */
	correctUsage(correction: UsageCorrection): Promise<boolean>;
	/** Returns the days (UTC, since the Unix epoch) that have usage, or sums of usage. */
	listUsageDays(): Promise<readonly bigint[]>;
	/**
	 * Makes the sums over conversations, and the days on which they have usage, equal to the ledgers, in one transaction.
	 * Resolves when it is on disk.
	 *
	 * @param day undefined for the sums of all time, which are made from those of the days
	 * @returns whether something was wrong
	 */
	correctUsageSums(day: bigint | undefined): Promise<boolean>;
	/** Returns how far data of one kind has been derived; undefined when no step of it was saved. */
	getDerivation(name: string): Promise<Derivation | undefined>;
	/** Compresses texts of the next events after a sequence: see `CompactedStep`. */
	compactEvents(after: bigint): Promise<CompactedStep>;
	/** Returns some free pages of the database to the file system, if the engine does so. */
	returnSpace(): Promise<ReturnedSpace>;
	/** Saves a step of {@link Derivation}. Resolves when it is on disk. */
	saveDerivation(step: DerivationStep): Promise<void>;
	/**
	 * Claims some work, or renews the claim, so that one process at a time does it.
	 *
	 * @param holder identifies the process
	 * @param now and `until`: the claim of another holder ends at its `until`. Microseconds since the Unix epoch
	 * @returns false when another holder has the claim
	 */
	claim(name: string, holder: string, now: bigint, until: bigint): Promise<boolean>;
	/** Resolves when the store can read and write; rejects otherwise. */
	check(): Promise<void>;
	/** Completes the requests that were accepted, then closes the store. */
	close(): Promise<void>;
}
