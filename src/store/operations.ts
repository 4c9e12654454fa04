import { createAccessKey, listAccessKeys, revokeAccessKey, touchAccessKeys } from "./access-keys.ts";
import { countWithoutSender } from "./assign-owner.ts";
import { audited, auditReads, auditWrites } from "./audit.ts";
import { budgetReads, budgetWrites } from "./budgets.ts";
import { type Claims, claim, claimFor } from "./claims.ts";
import { compactStep, findTexts } from "./compaction.ts";
import { countConversations, listConversations } from "./conversation-lists.ts";
import { findErasures } from "./erasure.ts";
import { forwardingReads, forwardingWrites, REPEATABLE_WRITES } from "./forwarding.ts";
import { listGaps } from "./gaps.ts";
import { emptyIndex, findChangedTitles, readIndexProgress, resetIndex, writeIndexStep } from "./index-steps.ts";
import { getOwnership } from "./owners.ts";
import { Pruner } from "./pruner.ts";
import {
	getRecordState,
	getUpdate,
	listEvents,
	listUnapplied,
	listUpdates,
	readEvents,
	readRange,
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
import type { LogListener, LogTable } from "./sequence-log.ts";
import type { Calls, RepackedRange, Session } from "./session.ts";
import type { Store } from "./store.ts";
import { CLAIM_SECONDS, type DocumentQuery, type TextIndex } from "./text-index.ts";
import { getUsageRange, listModelUsage, listUsageTotals, listUsedPeriods, reportUsage } from "./usage-report.ts";
import { listViews, ofViews, type WaitForViews } from "./views/follow.ts";

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
	getRecordState,
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

/** Name of the claim to write the index of search. */
const INDEX = "index of search";
/** Milliseconds for which a process claims it. */
const CLAIM = CLAIM_SECONDS * 1_000;

/**
 * Returns the methods of a store that consist of the operations.
 *
 * @param waitForViews lets the views follow for a read
 * @param subscribe as `SequenceLog.subscribe`
 * @param own what differs between the engines
 */
export function methodsOf(
	read: Calls<typeof reads>,
	view: Calls<typeof viewReads>,
	write: Calls<typeof writes>,
	waitForViews: WaitForViews,
	subscribe: (log: LogTable, listener: LogListener) => () => void,
	own: Pick<TextIndex, "find"> & Claims,
) {
	/** Who has claimed the index, and until when, in milliseconds of Unix time. */
	let claimed = { holder: "", until: 0 };
	const claimIndex = async (holder: string, milliseconds: number) => {
		const until = Date.now() + milliseconds;
		claimed = { holder, until: (await claimFor(own, INDEX, holder, milliseconds)) ? until : 0 };
	};
	const pruner = new Pruner({
		firstReceivedSince: (query) => read.firstReceivedSince(query),
		findPrunable: (query) => read.findPrunable(query),
		removeConversation: (request) => write.removeConversation(request),
		removeUpdates: (updates) => write.removeUpdates(updates),
		removeEvents: (bounds) => write.removeEvents(bounds),
		claim: own.claim,
		findDeleted: (bounds) => waitForViews(view.findDeleted, bounds),
		async findMeeting(conditions, limit) {
			const query = { conditions, limit, withRecords: false };
			return (await waitForViews(view.listConversations, query)).map(({ conversationId }) => conversationId);
		},
	});
	return {
		claim: own.claim,
		prune: (policy) => pruner.prune(policy),
		pruneConversations: (conditions, limit) => pruner.pruneConversations(conditions, limit),
		pruneEvents: (receivedBefore, limit) => pruner.pruneEvents(receivedBefore, limit),
		updates: {
			list: (query) => read.listUpdates(query),
			range: (query) => read.readRange({ log: "updates", query }),
			subscribe: (listener) => subscribe("updates", listener),
		},
		events: {
			list: (query) => read.listEvents(query),
			range: (query) => read.readRange({ log: "events", query }),
			subscribe: (listener) => subscribe("events", listener),
		},
		textIndex: {
			find: own.find,
			progress: () => read.readIndexProgress(),
			async claim(holder) {
				// One write for several calls.
				const now = Date.now();
				if (claimed.holder !== holder || claimed.until < now + CLAIM / 2) await claimIndex(holder, CLAIM);
				return claimed.until > now ? await read.readIndexProgress() : undefined;
			},
			release: (holder) => claimIndex(holder, 0),
			findChangedTitles: (after) => read.findChangedTitles(after),
			write: (step) => write.writeIndexStep(step),
			reset: () => write.resetIndex(),
			empty: (expects) => write.emptyIndex(expects),
		},
		accessKeys: {
			list: () => read.listAccessKeys(),
			create: (key) => write.createAccessKey(key),
			revoke: (revoked) => write.revokeAccessKey(revoked),
			touch: (uses) => write.touchAccessKeys(uses),
		},
		refusedPosts: {
			add: (posts, room) => write.addRefusedPosts({ posts, room }),
			accept: (post, room) => write.acceptRefusedPost({ post, room }),
			expire: (age) => write.expireRefusedPosts(age),
			list: (query) => read.listRefusedPosts(query),
			get: (id, owner) => read.getRefusedPost({ id, owner }),
			setReasons: (refused) => write.setRefusedReasons(refused),
			remove: (id) => write.removeRefusedPost(id),
			usage: () => read.refusedUsage(),
		},
		tables: { read, write },
		countWithoutSender: () => read.countWithoutSender(),
		getErasure: (conversationId) => read.getErasure(conversationId),
		getOwnership: (conversationId) => read.getOwnership(conversationId),
		listGaps: (conversationId) => read.listGaps(conversationId),
		listViews: () => read.listViews(),
		addRefusals: (refusals) => write.addRefusals(refusals),
		getRecordState: (conversationId, eventIds) => read.getRecordState({ conversationId, eventIds }),
		listUnapplied: (limit) => read.listUnapplied(limit),
		get: (conversationId, asOf, owner) => read.getUpdate({ conversationId, asOf, owner }),
		readEvents: (sequences) => read.readEvents(sequences),
		getRetentionTime: () => read.getRetentionTime(),
		saveRetentionTime: (time) => write.saveRetentionTime(time),
		compactEvents: async (after) => await compactStep(await read.findTexts(after), (range) => write.writeTexts(range)),
		listConversations: (query) => waitForViews(view.listConversations, query),
		countConversations: (query) => waitForViews(view.countConversations, query),
		listSenders: (owner) => waitForViews(view.listSenders, owner),
		reportUsage: (query) => waitForViews(view.reportUsage, query),
		getUsageRange: (owner) => waitForViews(view.getUsageRange, owner),
		listUsedPeriods: (query) => waitForViews(view.listUsedPeriods, query),
		listModelUsage: () => waitForViews(view.listModelUsage, undefined),
		listUsageTotals: (after) => waitForViews(view.listUsageTotals, after),
	} satisfies Partial<Store>;
}
