import { createAccessKey, listAccessKeys, revokeAccessKey, touchAccessKeys } from "./access-keys.ts";
import { countWithoutSender } from "./assign-owner.ts";
import { audited, auditReads, auditWrites } from "./audit.ts";
import { budgetReads, budgetWrites } from "./budgets.ts";
import { type Claims, claim } from "./claims.ts";
import { compactStep, findTexts } from "./compaction.ts";
import type { Condition } from "./condition.ts";
import { countConversations, listConversations } from "./conversation-lists.ts";
import { findErasures } from "./erasure.ts";
import { forwardingReads, forwardingWrites, REPEATABLE_WRITES } from "./forwarding.ts";
import { listGaps } from "./gaps.ts";
import { emptyIndex, findChangedTitles, readIndexProgress, resetIndex, writeIndexStep } from "./index-steps.ts";
import { getOwnership } from "./owners.ts";
import { type PrunePolicy, Pruner } from "./pruner.ts";
import {
	getUpdate,
	listEvents,
	listUnapplied,
	listUpdates,
	readEvents,
	readRange,
	readRecordState,
} from "./read-logs.ts";
import {
	acceptRefusedPost,
	addRefusedPosts,
	expireRefusedPosts,
	getRefusedPost,
	listRefusedPosts,
	refusedUsage,
	removeRefusedPost,
	setRefusedReasons,
} from "./refused-posts.ts";
import {
	findDeleted,
	findPrunable,
	firstReceivedSince,
	getRetentionTime,
	removeConversation,
	removeEvents,
	removeUpdates,
	saveRetentionTime,
} from "./remove.ts";
import { addRefusals, listSenders } from "./senders.ts";
import type { LogListener, LogTable, RangeQuery } from "./sequence-log.ts";
import type { Calls, RepackedRange, Session } from "./session.ts";
import type { DocumentQuery } from "./text-index.ts";
import { getUsageRange, listModelUsage, listUsageTotals, listUsedPeriods, reportUsage } from "./usage-report.ts";
import { listViews, ofViews, type ViewQuery, type WaitForViews } from "./views/follow.ts";

/** The operations of a store that are written once for both engines. Each runs in a transaction of its own. */

/** Operations that read one state of the database. */
export const reads = {
	...auditReads,
	...budgetReads,
	...forwardingReads,
	listAccessKeys,
	countWithoutSender,
	getErasure: async (session: Session, conversationId: string) => (await findErasures(session, [conversationId]))[0],
	getOwnership,
	listGaps,
	listRefusedPosts,
	getRefusedPost,
	refusedUsage,
	listViews,
	getUpdate,
	listUpdates,
	listEvents,
	readEvents,
	readRecordState,
	listUnapplied,
	readRange,
	getRetentionTime,
	findTexts,
	readIndexProgress: (session: Session) => readIndexProgress(session),
	findChangedTitles,
	findPrunable,
	firstReceivedSince,
};

/** Operations that read views. They wait until these have everything that was accepted before. */
export const viewReads = {
	findDeleted: ofViews(findDeleted, "conversations"),
	listConversations: ofViews(listConversations, "conversations"),
	countConversations: ofViews(countConversations, "conversations"),
	listSenders: ofViews(listSenders, "conversations"),
	reportUsage: ofViews(reportUsage, "usage", "conversations"),
	getUsageRange: ofViews(getUsageRange, "usage"),
	listUsedPeriods: ofViews(listUsedPeriods, "usage"),
	listModelUsage: ofViews((session: Session, _: undefined) => listModelUsage(session), "usage"),
	listUsageTotals: ofViews(listUsageTotals, "usage"),
	findDocuments: ofViews((session: Session, query: DocumentQuery) => session.findDocuments(query), "conversations"),
};

/** Operations that write. What they write is on disk when they resolve, except for {@link isRepeatable}. */
export const writes = {
	...auditWrites,
	...budgetWrites,
	...forwardingWrites,
	createAccessKey: audited(createAccessKey),
	revokeAccessKey: audited(revokeAccessKey),
	touchAccessKeys,
	addRefusals,
	addRefusedPosts,
	acceptRefusedPost,
	expireRefusedPosts,
	setRefusedReasons,
	removeRefusedPost: audited(removeRefusedPost),
	saveRetentionTime,
	claim,
	removeConversation,
	removeUpdates,
	removeEvents,
	writeIndexStep,
	resetIndex,
	emptyIndex,
	writeTexts: (session: Session, range: RepackedRange) => session.writeTexts(range),
};

const MOVE_BUDGET: keyof typeof budgetWrites = "moveBudget";

/** Whether a write need not be on disk before the answer, because it is done again after a crash. */
export function isRepeatable(write: string): boolean {
	return REPEATABLE_WRITES.has(write) || write === MOVE_BUDGET;
}

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

/**
 * Returns the methods of a store that consist of the operations.
 *
 * @param waitForViews lets the views follow for a read
 * @param subscribe as `SequenceLog.subscribe`
 * @param claim as the operation
 */
export function methodsOf(
	read: Calls<typeof reads>,
	view: Calls<typeof viewReads>,
	write: Calls<typeof writes>,
	waitForViews: WaitForViews,
	subscribe: (log: LogTable, listener: LogListener) => () => void,
	claim: Claims["claim"],
) {
	const calls = {
		...byName<typeof reads, Calls<typeof reads>>(reads, (name) => read[name]),
		...byName<typeof viewReads, ViewCalls<typeof viewReads>>(
			viewReads,
			(name) => (query: never) => waitForViews<never, unknown>(view[name], query),
		),
		...byName<typeof writes, Calls<typeof writes>>(writes, (name) => write[name]),
		claim,
	};
	const pruner = new Pruner(calls);
	return {
		...calls,
		tables: { read, write },
		updates: {
			list: read.listUpdates,
			range: (query?: RangeQuery) => read.readRange({ log: "updates", query }),
			subscribe: (listener: LogListener) => subscribe("updates", listener),
		},
		events: {
			list: read.listEvents,
			range: (query?: RangeQuery) => read.readRange({ log: "events", query }),
			subscribe: (listener: LogListener) => subscribe("events", listener),
		},
		get: (conversationId: string, asOf?: bigint, owner?: string) => read.getUpdate({ conversationId, asOf, owner }),
		getRecordState: (conversationId: string, eventIds: readonly string[]) =>
			read.readRecordState({ conversationId, eventIds }),
		prune: (policy: PrunePolicy) => pruner.prune(policy),
		pruneConversations: (conditions: readonly Condition[], limit: number) =>
			pruner.pruneConversations(conditions, limit),
		pruneEvents: (receivedBefore: bigint, limit: number) => pruner.pruneEvents(receivedBefore, limit),
		compactEvents: async (after: bigint) =>
			await compactStep(await read.findTexts(after), (range) => write.writeTexts(range)),
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
