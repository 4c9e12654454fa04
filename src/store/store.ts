import type { CallSignal } from "../errors.ts";
import type { auditReads, auditWrites } from "./audit.ts";
import type { budgetReads, budgetWrites } from "./budgets.ts";
import type { ReturnedSpace } from "./compaction.ts";
import type { Condition } from "./condition.ts";
import type {
	AppendedEvents,
	AppendedUpdate,
	EventQuery,
	NewEvents,
	NewUpdate,
	RecordState,
	StoredEvent,
	StoredUpdate,
	UpdateQuery,
} from "./entries.ts";
import type { Erased, EraseRequest, Erasure } from "./erasure.ts";
import type { forwardingReads, forwardingWrites } from "./forwarding.ts";
import type { reads, ViewCalls, viewReads, writes } from "./operations.ts";
import type { OwnerAssignment } from "./owners.ts";
import type { PrunePolicy } from "./remove.ts";
import type { SequenceLog } from "./sequence-log.ts";
import type { Calls } from "./session.ts";
import type { DocumentQuery, FoundDocument } from "./text-index.ts";
import type { ViewName } from "./views/follow.ts";

/**
 * The interface of the store. A store keeps two logs, each with its own sequence numbers: the updates of all
 * conversations and the events of all conversations. An update comes from a posted record or from state updates, which
 * are events that set members of the record. The store also keeps the current record of each conversation. It stores
 * records as encoded bytes and does not decode their values; lists filter by the summary of a record.
 */

/**
 * A store engine. Most of its methods are the operations of operations.ts. They fail with a {@link import("../errors.ts").ServiceError}: `unavailable` when the database
 * as a whole cannot be read or written, `internal` when only this request failed.
 *
 * Reads return whole records, also where the database holds a delta. The current record of a conversation has its
 * newest `leaf_event_id`.
 */
export interface Store extends Calls<typeof reads>, ViewCalls<typeof viewReads>, Calls<typeof writes>, AsyncDisposable {
	readonly updates: SequenceLog<StoredUpdate, UpdateQuery>;
	readonly events: SequenceLog<StoredEvent, EventQuery>;
	/** Endpoints with their deliveries, budgets, and the audit. */
	readonly tables: {
		readonly read: Calls<typeof auditReads & typeof budgetReads & typeof forwardingReads>;
		readonly write: Calls<typeof auditWrites & typeof budgetWrites & typeof forwardingWrites>;
	};
	/**
	 * Finds documents, newest first; with `of` in any order.
	 *
	 * @throws ServiceError `unavailable` when the signal fires before the query has begun
	 */
	readonly findDocuments: (query: DocumentQuery, signal?: CallSignal) => Promise<FoundDocument[]>;
	/**
	 * Appends an update, unless it is a duplicate: {@link AppendedUpdate.duplicate}. Resolves when it is on disk.
	 *
	 * @param signal if it has fired when the engine looks at it, the append fails with `unavailable`. SQLite's engine looks
	 *   before it sends the update to its writer thread, which checks the deadline again. PostgreSQL's engine looks when it
	 *   has locked the conversation.
	 */
	append(update: NewUpdate, signal?: CallSignal): Promise<AppendedUpdate>;
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
	 * of usage. Other conversations of its owner forget it as their parent, as their source and as their child. What stays
	 * is an {@link Erasure}, and what {@link Erased} names. Refused posts that name it are erased, too, those of the requested
	 * owner only, whoever the conversation belongs to.
	 *
	 * @returns undefined when nothing was erased: there is no such conversation, or it has another owner than the requested
	 *   one, and no refused post
	 */
	erase(request: EraseRequest): Promise<Erased | undefined>;
	/**
	 * Removes from the files what erasures removed from the tables. What cannot be removed at once, because a backup or an
	 * export reads the database, goes later.
	 */
	purge(): Promise<void>;
	/** Returns the record state of a conversation, and which of the event ids are already stored. */
	getRecordState(conversationId: string, eventIds: readonly string[]): Promise<RecordState>;
	/**
	 * Returns the current update of a conversation, or the one that was current as of sequence `asOf`; undefined when
	 * there is none, or it has been pruned.
	 *
	 * @param owner reads nothing of a conversation that has another owner, or none
	 */
	get(conversationId: string, asOf?: bigint, owner?: string): Promise<StoredUpdate | undefined>;
	/**
	 * Removes history that a policy no longer keeps. The current update of a conversation, and the base if it is a delta,
	 * are kept, unless the conversation has been `deleting` since before `receivedBefore`. Then all of the conversation
	 * is removed, including its events.
	 *
	 * @returns number of removed updates and events; below the limit when the last conversation was examined. The next call
	 *   begins with the first one
	 */
	prune(policy: PrunePolicy): Promise<number>;
	/**
	 * Removes conversations that meet all conditions, each as a whole with its history and events. What they spent stays, and
	 * one that is posted again begins anew.
	 *
	 * @param limit maximum number of updates and events to remove. The end of a conversation may exceed it by 1
	 * @returns number of removed updates and events
	 */
	pruneConversations(conditions: readonly Condition[], limit: number): Promise<number>;
	/** Removes at most `limit` events that were received before a time, oldest first. Returns the number removed. */
	pruneEvents(receivedBefore: bigint, limit: number): Promise<number>;
	/** Returns some free pages of the database to the file system, if the engine does so. */
	returnSpace(): Promise<ReturnedSpace>;
	/**
	 * Empties views, by default all, and lets them follow the logs from their beginning. So they are derived by the present
	 * rules, and from what can be read now. Resolves when they have followed; a read of them fails if it waits for too long.
	 */
	resetViews(views?: readonly ViewName[]): Promise<void>;
	/** Resolves when the store can read and write; rejects otherwise. */
	check(): Promise<void>;
	/** Completes the requests that were accepted, then closes the store. */
	close(): Promise<void>;
}
