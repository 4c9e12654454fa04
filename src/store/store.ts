import { type CallSignal, ServiceError } from "../errors.ts";
import { accessKeyWrites, addAudit, auditReads, listAccessKeys } from "./access.ts";
import { countWithoutSender } from "./assign-owner.ts";
import { budgetReads, budgetWrites } from "./budgets.ts";
import { compactEvents, type ReturnedSpace } from "./compaction.ts";
import { countConversations, listConversations } from "./conversation-lists.ts";
import type { AppendedEvents, AppendedUpdate, NewEvents, NewUpdate } from "./entries.ts";
import { type Erased, type EraseRequest, type Erasure, findErasures } from "./erasure.ts";
import { forwardingReads, forwardingWrites } from "./forwarding.ts";
import { listGaps } from "./gaps.ts";
import { findDocuments, indexWrites, readIndexProgress } from "./index-steps.ts";
import { getOwnership, type OwnerAssignment } from "./owners.ts";
import { logReads } from "./read-logs.ts";
import { refusedReads, refusedWrites } from "./refused-posts.ts";
import { findDeleted, prunerOf, removalReads, removalWrites } from "./remove.ts";
import { reportScores } from "./score-report.ts";
import { listScoreValues, scoreReads, scoreWrites } from "./scores.ts";
import { addRefusals, listSenders } from "./senders.ts";
import type { LogListener, LogTable, SequenceLog } from "./sequence-log.ts";
import { type Calls, type Claims, claim, type Session } from "./session.ts";
import type { DocumentQuery, FoundDocument } from "./text-index.ts";
import { getUsageRange, listModelUsage, listUsedPeriods, reportUsage } from "./usage-report.ts";
import {
	listViews,
	ofViews,
	readView,
	type ViewAnswer,
	type ViewName,
	type ViewPosition,
	type ViewQuery,
} from "./views/follow.ts";

/**
 * The interface of the store, whose operations are written once for both engines. A store keeps two logs, each with its own
 * sequence numbers: the updates of all conversations and the events of all conversations. An update comes from a posted
 * record or from state updates, which are events that set members of the record. The store also keeps the current record of
 * each conversation. It stores records as encoded bytes and does not decode their values; lists filter by the summary of a
 * record.
 */

/** Operations that read one state of the database. */
export const reads = {
	...auditReads,
	...budgetReads,
	...forwardingReads,
	listAccessKeys,
	readIndexProgress,
	...logReads,
	...refusedReads,
	...removalReads,
	...scoreReads,
	countWithoutSender,
	getErasure: async (session: Session, conversationId: string) => (await findErasures(session, [conversationId]))[0],
	getOwnership,
	listGaps,
	listViews,
};

/** Operations that read views. They wait until these have everything that was accepted before. */
export const viewReads = {
	findDeleted: ofViews(findDeleted, "conversations"),
	listConversations: ofViews(listConversations, "conversations"),
	countConversations: ofViews(countConversations, "conversations"),
	listSenders: ofViews(listSenders, "conversations"),
	listScoreValues: ofViews(listScoreValues, "conversations"),
	reportScores: ofViews(reportScores, "conversations"),
	reportUsage: ofViews(reportUsage, "usage", "conversations"),
	getUsageRange: ofViews(getUsageRange, "usage"),
	listUsedPeriods: ofViews(listUsedPeriods, "usage"),
	listModelUsage: ofViews((session: Session, _: undefined) => listModelUsage(session), "usage"),
	findDocuments: ofViews(findDocuments, "conversations"),
};

/** Operations that write. What they write is on disk when they resolve, except for {@link isRepeatable}. */
export const writes = {
	addAudit,
	...budgetWrites,
	...forwardingWrites,
	...accessKeyWrites,
	...indexWrites,
	...refusedWrites,
	...removalWrites,
	...scoreWrites,
	addRefusals,
	claim,
	compactEvents,
};

/** Whether a write need not be on disk before the answer, because it is done again after a crash. */
export function isRepeatable(write: string): boolean {
	return REPEATABLE_WRITES.has(write);
}

const REPEATABLE_WRITES: ReadonlySet<string> = new Set<keyof typeof writes>([
	// Deliveries have the same ids then.
	"advanceEndpoint",
	"recordTries",
	"trimDeliveries",
	"moveBudget",
	"writeIndexStep",
]);

/** The calls of reads of views. They wait until the views have what was accepted before. */
export type ViewCalls<Operations> = {
	readonly [Name in keyof Operations]: Operations[Name] extends (
		session: Session,
		query: ViewQuery<infer Query>,
	) => Promise<infer Answer>
		? undefined extends Query
			? (query?: Query) => Promise<ResultOf<Answer>>
			: (query: Query) => Promise<ResultOf<Answer>>
		: never;
};

type ResultOf<Answer> = Extract<Answer, { readonly result: unknown }>["result"];

/** Work under way, for which a store waits when it is closed. */
export class Running {
	readonly #works = new Set<Promise<unknown>>();
	#isClosed = false;

	/** @throws {ServiceError} `unavailable` when the store is closed */
	async run<Result>(work: () => Promise<Result>): Promise<Result> {
		if (this.#isClosed) throw new ServiceError("unavailable", "the store is closed");
		const running = work();
		this.#works.add(running);
		try {
			return await running;
		} finally {
			this.#works.delete(running);
		}
	}

	/** Resolves when all work has ended. */
	async close(): Promise<void> {
		this.#isClosed = true;
		await Promise.allSettled(this.#works);
	}
}

/**
 * A store engine. Its methods fail with a {@link ServiceError}: `unavailable` when the database as a whole cannot be read or
 * written, `internal` when only this request failed.
 *
 * Reads return whole records, also where the database holds a delta. The current record of a conversation has its
 * newest `leaf_event_id`.
 */
export interface Store extends ReturnType<typeof methodsOf>, AsyncDisposable {
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

/** What the operations of an engine run by. */
interface EngineCalls {
	readonly read: Calls<typeof reads>;
	readonly view: Calls<typeof viewReads>;
	readonly write: Calls<typeof writes>;
	readonly find: (of: ViewQuery<DocumentQuery>, signal: CallSignal | undefined) => Promise<ViewAnswer<FoundDocument[]>>;
	readonly claim: Claims["claim"];
	/** Lets the views follow the logs up to some entries. */
	readonly follow: (through: ViewPosition) => Promise<void>;
	readonly running: Running;
	/** As `SequenceLog.subscribe`. */
	readonly subscribe: (log: LogTable, listener: LogListener) => () => void;
}

/** Returns the methods of a store that consist of the operations. */
export function methodsOf({ read, view, write, find, claim, follow, running, subscribe }: EngineCalls) {
	const waitForViews = <Query, Result>(
		query: Query,
		readAt: (query: ViewQuery<Query>) => Promise<ViewAnswer<Result>>,
	): Promise<Result> => running.run(() => readView(query, readAt, follow));
	const calls = {
		...byName<typeof reads, Calls<typeof reads>>(reads, (name) => read[name]),
		...byName<typeof viewReads, ViewCalls<typeof viewReads>>(
			viewReads,
			(name) => (query: never) => waitForViews<never, unknown>(query, view[name]),
		),
		...byName<typeof writes, Calls<typeof writes>>(writes, (name) => write[name]),
		claim,
	};
	const { prune, pruneConversations, pruneEvents } = prunerOf(calls);
	const logOf = <Entry, Query>(log: LogTable, list: SequenceLog<Entry, Query>["list"]): SequenceLog<Entry, Query> => ({
		list,
		range: (query) => read.readRange({ log, query }),
		subscribe: (listener) => subscribe(log, listener),
	});
	return {
		...calls,
		/**
		 * Finds documents, newest first; with `of` in any order.
		 *
		 * @throws ServiceError `unavailable` when the signal fires before the query has begun
		 */
		findDocuments: (query: DocumentQuery, signal?: CallSignal) => waitForViews(query, (of) => find(of, signal)),
		/** Endpoints with their deliveries, budgets, and the audit. */
		tables: { read, write },
		updates: logOf("updates", read.listUpdates),
		events: logOf("events", read.listEvents),
		/**
		 * Returns the current update of a conversation, or the one that was current as of sequence `asOf`; undefined when
		 * there is none, or it has been pruned.
		 *
		 * @param owner reads nothing of a conversation that has another owner, or none
		 */
		get: (conversationId: string, asOf?: bigint, owner?: string) => read.getUpdate({ conversationId, asOf, owner }),
		/** Returns the record state of a conversation, and which of the event ids are already stored. */
		getRecordState: (conversationId: string, eventIds: readonly string[]) =>
			read.readRecordState({ conversationId, eventIds }),
		/**
		 * Removes history that a policy no longer keeps. The current update of a conversation, and the base if it is a delta,
		 * are kept, unless the conversation has been `deleting` since before `receivedBefore`. Then all of the conversation
		 * is removed, including its events.
		 *
		 * @returns number of removed updates and events; below the limit when the last conversation was examined. The next
		 *   call begins with the first one
		 */
		prune,
		/**
		 * Removes conversations that meet all conditions, each as a whole with its history and events. What they spent stays, and
		 * one that is posted again begins anew.
		 *
		 * @param limit maximum number of updates and events to remove. The end of a conversation may exceed it by 1
		 * @returns number of removed updates and events
		 */
		pruneConversations,
		/** Removes at most `limit` events that were received before a time, oldest first. Returns the number removed. */
		pruneEvents,
	};
}

/** Returns functions by the names of operations. The calls to a thread, which have any name, do not tell these. */
function byName<Operations extends object, Functions>(
	operations: Operations,
	of: (name: keyof Operations) => unknown,
): Functions {
	const names = Object.keys(operations) as (keyof Operations)[];
	return Object.fromEntries(names.map((name) => [name, of(name)])) as Functions;
}
