import { randomUUID } from "node:crypto";
import { type CallSignal, isSenderGone, SENDER_GONE } from "../../call-signal.ts";
import { ServiceError } from "../../errors.ts";
import type { ThreadLogger, ThreadObserver } from "../../threads/worker-thread.ts";
import { createAccessKey, listAccessKeys, revokeAccessKey, touchAccessKeys } from "../access-keys.ts";
import { compactStep } from "../compaction.ts";
import { appendJudged, type IsSameRecord } from "../duplicates.ts";
import { Pruner } from "../pruner.ts";
import { packEvents } from "../record-column.ts";
import type { Session as AnySession } from "../session.ts";
import { callsOf } from "../session-calls.ts";
import { sideReads, sideWrites } from "../side-tables.ts";
import type { Store } from "../store.ts";
import type { ViewName } from "../views/follow.ts";
import { listViews, readView, type ViewAnswer, type ViewQuery } from "../views/read-view.ts";
import { resetViews } from "../views/views.ts";
import { batchResult, updateResult } from "./append-results.ts";
import { Appender } from "./appender.ts";
import { claim } from "./claims.ts";
import { findTexts, writeTextsQuery } from "./compaction.ts";
import type { Connections } from "./connections.ts";
import { EntryAnnouncer } from "./entry-announcer.ts";
import { erase } from "./erase.ts";
import { findErasures } from "./erasures.ts";
import { listEvents, readEvents } from "./events.ts";
import { serviceError } from "./failures.ts";
import { findGaps } from "./gaps.ts";
import type { WriteLimits } from "./group.ts";
import { countConversations, listConversations } from "./list-conversations.ts";
import { readPositions, readRange, readRetentionTime, saveRetentionTime } from "./log.ts";
import { migrate } from "./migrate.ts";
import { assignOwner, countWithoutSender } from "./owners.ts";
import { pruningOf } from "./pruning.ts";
import { getOrigin, getRecordState, listUnapplied } from "./record-state.ts";
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
import { listSenders, refusalsQueries } from "./senders.ts";
import { postgresSession } from "./session.ts";
import {
	claimedFrom,
	claimQueries,
	emptyIndex,
	findChangedTitles,
	findDocuments,
	readProgress,
	releaseQuery,
	resetQuery,
	writeStep,
} from "./text-index.ts";
import type { Query, Session } from "./transaction.ts";
import { requireFinished } from "./unfinished.ts";
import { getUpdate, listUpdates } from "./updates.ts";
import { getUsageRange, listModelUsage, listUsageTotals, listUsedPeriods, reportUsage } from "./usage-report.ts";
import { newestIfBehind, ViewFollower } from "./views.ts";
import { deleteIdleWriters, touchWriter } from "./writers.ts";

/**
 * Milliseconds from the call of the store in which an append may be written. Later, its sender may have given up without a
 * sign, as when the network between it and this replica failed. The agent server gives up after 30 seconds.
 */
const WRITE_TIMEOUT = 20_000;

export interface PostgresOptions {
	/** Compares records that may be duplicates. When omitted, only records with the same bytes are duplicates. */
	readonly isSameRecord?: IsSameRecord;
	/** Observes the appends, under the thread name `writer`. */
	readonly observer?: ThreadObserver | undefined;
	/** Whether to spread the tables over the servers of Citus: see {@link migrate}. */
	readonly distribute?: boolean | undefined;
}

/**
 * Opens the store in a PostgreSQL database, and creates or migrates its tables. Any number of stores, in any number of
 * processes, can share one database.
 *
 * @param connections owned by the store, which closes them
 * @throws ServiceError `unavailable` when the database cannot be reached or migrated, has the schema of a newer release,
 *   or holds an unfinished import; the cause says why
 */
export async function openPostgresStore(
	connections: Connections,
	log: ThreadLogger,
	options: PostgresOptions = {},
): Promise<Store> {
	const { isSameRecord = async () => false, observer } = options;
	const store = storeOf(connections, log, isSameRecord, observer);
	try {
		await migrate(connections, options.distribute);
		await connections.read(requireFinished);
		await connections.transaction((transaction) => transaction.commit(deleteIdleWriters));
	} catch (error) {
		await store.close();
		throw error;
	}
	return store;
}

function storeOf(
	connections: Connections,
	log: ThreadLogger,
	isSameRecord: IsSameRecord,
	observer: ThreadObserver | undefined,
): Store {
	const follower = new ViewFollower(connections, (error) =>
		log.error({ err: serviceError(error), operation: "follow", count: 1 }, "the store failed"),
	);
	const announcer = new EntryAnnouncer(connections, log, () => run(() => connections.read(readPositions)));
	const appender = new Appender(connections, log, (newest) => announcer.announce(newest), observer);
	for (const log of ["updates", "events"] as const) announcer.subscribe(log, () => follower.schedule());
	const pruner = new Pruner(pruningOf(connections, (query, work) => readOfView("findDeleted", query, work)));
	/** Id of the row of `writers` that `check` writes. */
	const checkId = randomUUID();
	/** Operations in progress. */
	const operations = new Set<Promise<unknown>>();
	let closed: Promise<void> | undefined;

	/** Runs an operation, for which {@link close} waits. */
	async function run<T>(work: () => Promise<T>): Promise<T> {
		if (closed !== undefined) throw new ServiceError("unavailable", "the store is closed");
		const running = work();
		operations.add(running);
		try {
			return await running;
		} finally {
			operations.delete(running);
		}
	}

	/** Logs a failure, and throws it as the error that a caller of the store gets. */
	async function logged<T>(operation: string, running: Promise<T>): Promise<T> {
		try {
			return await running;
		} catch (error) {
			const failure = serviceError(error);
			log.error({ err: failure, operation, count: 1 }, "the store failed");
			throw failure;
		}
	}

	function read<T>(operation: string, work: (session: Session) => Promise<T>): Promise<T> {
		return run(() => logged(operation, connections.read(work)));
	}

	function limits(signal: CallSignal | undefined): WriteLimits {
		return { signal, until: performance.now() + WRITE_TIMEOUT };
	}

	/** Runs queries and commits. Only a commit that the server confirms proves that the data is stored. */
	async function write(...queries: readonly Query[]): Promise<void> {
		await connections.transaction((transaction) => transaction.commit(...queries));
	}

	/** Writes in a transaction: see {@link write}. */
	function writeInSession<T>(operation: string, work: (session: AnySession) => Promise<T>): Promise<T> {
		return run(() =>
			logged(
				operation,
				connections.transaction((transaction) => work(postgresSession(transaction))),
			),
		);
	}

	/** Reads views, by default that of conversations, when they have everything that was accepted before. */
	function readOfView<Query, Result>(
		operation: string,
		query: Query,
		work: (session: Session, query: Query) => Promise<Result>,
		views: readonly ViewName[] = ["conversations"],
	): Promise<Result> {
		const readOnce = ({ isFollowed }: ViewQuery<Query>) =>
			connections.read(async (session): Promise<ViewAnswer<Result>> => {
				const behind = isFollowed ? undefined : await newestIfBehind(session, views);
				return behind === undefined ? { result: await work(session, query) } : { behind };
			});
		return run(() =>
			logged(
				operation,
				readView(query, readOnce, (through) => follower.follow(through)),
			),
		);
	}

	async function finish(): Promise<void> {
		await Promise.allSettled([...operations]);
		await follower.close();
		await connections[Symbol.asyncDispose]();
	}

	function close(): Promise<void> {
		closed ??= finish();
		return closed;
	}

	return {
		updates: {
			list: (query) => read("listUpdates", (session) => listUpdates(session, query)),
			range: (query = {}) => read("range", (session) => readRange(session, "updates", query)),
			subscribe: (listener) => announcer.subscribe("updates", listener),
		},
		events: {
			list: (query) => read("listEvents", (session) => listEvents(session, query)),
			range: (query = {}) => read("range", (session) => readRange(session, "events", query)),
			subscribe: (listener) => announcer.subscribe("events", listener),
		},
		accessKeys: {
			list: () => read("listAccessKeys", (session) => listAccessKeys(postgresSession(session))),
			create: (key) => writeInSession("createAccessKey", (session) => createAccessKey(session, key)),
			revoke: (name, at) => writeInSession("revokeAccessKey", (session) => revokeAccessKey(session, { name, at })),
			touch: (uses) => writeInSession("touchAccessKeys", (session) => touchAccessKeys(session, uses)),
		},
		refusedPosts: {
			add: (posts, room) => run(() => logged("addRefusedPosts", addRefusedPosts(connections, posts, room))),
			accept: (post, room) => run(() => logged("acceptRefusedPost", acceptRefusedPost(connections, post, room))),
			expire: (age) => run(() => logged("expireRefusedPosts", expireRefusedPosts(connections, age))),
			list: (query) => read("listRefusedPosts", (session) => listRefusedPosts(session, query)),
			get: (id, owner) => read("getRefusedPost", (session) => getRefusedPost(session, id, owner)),
			setReasons: (refused) => run(() => logged("setRefusedReasons", write(setRefusedReasons(refused)))),
			remove: (id) => run(() => logged("removeRefusedPost", removeRefusedPost(connections, id))),
			usage: () => read("refusedUsage", refusedUsage),
		},
		textIndex: {
			progress: () => read("readIndexProgress", readProgress),
			claim: (holder) =>
				run(async () =>
					claimedFrom(
						await logged(
							"claimIndex",
							connections.transaction((transaction) => transaction.commit(...claimQueries(holder))),
						),
					),
				),
			release: (holder) => run(() => logged("releaseIndex", write(releaseQuery(holder)))),
			findChangedTitles: (after) => read("findChangedTitles", (session) => findChangedTitles(session, after)),
			write: (step) => run(() => logged("writeIndex", writeStep(connections, step))),
			reset: () => run(() => logged("resetIndex", write(resetQuery()))),
			empty: (expects) => run(() => logged("emptyIndex", emptyIndex(connections, expects))),
			async find(query, signal) {
				// The read may have waited for a connection.
				const found = await readOfView("findDocuments", query, async (session) =>
					isSenderGone(signal) ? undefined : findDocuments(session, query),
				);
				if (found === undefined) throw SENDER_GONE;
				return found;
			},
		},
		tables: {
			read: callsOf(sideReads, (name, work) => read(name, (session) => work(postgresSession(session)))),
			write: callsOf(sideWrites, (name, work) =>
				run(() =>
					logged(
						name,
						connections.transaction((transaction) => work(postgresSession(transaction))),
					),
				),
			),
		},
		append: (update, signal) =>
			run(() => {
				const limited = { update, ...limits(signal) };
				return appendJudged(
					async (judged) => updateResult(await appender.append({ ...limited, judged })),
					update.record.bytes,
					isSameRecord,
				);
			}),
		appendEvents: (batch, signal) =>
			run(async () => batchResult(await appender.append({ ...(await packEvents(batch)), ...limits(signal) }))),
		getRecordState: (conversationId, eventIds) =>
			read("getRecordState", (session) => getRecordState(session, conversationId, eventIds)),
		assignOwner: (assignment) =>
			run(async () => {
				const { assigned, rewrites } = await logged("assignOwner", assignOwner(connections, assignment));
				announcer.announceRewrite(rewrites);
				return assigned;
			}),
		countWithoutSender: () => read("countWithoutSender", countWithoutSender),
		erase: (request) =>
			run(async () => {
				await logged("follow", follower.follow({ updates: 0n, events: 0n }));
				const erased = await logged("erase", erase(connections, request));
				if (erased?.rewrites !== undefined) announcer.announceRewrite(erased.rewrites);
				if (erased?.erasure !== undefined) announcer.announce({ updates: erased.erasure.sequence, events: 0n });
				return erased && { erasure: erased.erasure, unreadable: erased.unreadable };
			}),
		// The server removes the rows from its files: see docs/operations.md.
		purge: async () => undefined,
		getErasure: (conversationId) =>
			read("getErasure", async (session) => (await findErasures(session, [conversationId]))[0]),
		getOrigin: (conversationId) => read("getOrigin", (session) => getOrigin(session, conversationId)),
		listGaps: (conversationId) =>
			read("listGaps", async (session) => [...(await findGaps(session, conversationId)).values()]),
		listUnapplied: (limit) => read("listUnapplied", (session) => listUnapplied(session, limit)),
		get: (conversationId, asOf, owner) => read("get", (session) => getUpdate(session, conversationId, asOf, owner)),
		readEvents: (sequences) => read("readEvents", (session) => readEvents(session, sequences)),
		listConversations: (query) => readOfView("listConversations", query, listConversations),
		countConversations: (query) => readOfView("countConversations", query, countConversations),
		claim: (name, holder, now, until) => run(() => logged("claim", claim(connections, name, holder, now, until))),
		resetViews: (views) =>
			run(() =>
				logged(
					"resetViews",
					(async () => {
						await connections.transaction((transaction) => resetViews(postgresSession(transaction), views));
						await follower.follow({ updates: 0n, events: 0n });
					})(),
				),
			),
		listViews: () => read("listViews", (session) => listViews(postgresSession(session))),
		prune: (policy) => run(() => logged("prune", pruner.prune(policy))),
		pruneEvents: (receivedBefore, limit) => run(() => logged("pruneEvents", pruner.pruneEvents(receivedBefore, limit))),
		addRefusals: (refusals) => run(() => logged("addRefusals", write(...refusalsQueries(refusals)))),
		listSenders: (owner) => readOfView("listSenders", owner, listSenders),
		reportUsage: (query) => readOfView("reportUsage", query, reportUsage, ["usage", "conversations"]),
		getUsageRange: (owner) => readOfView("getUsageRange", owner, getUsageRange, ["usage"]),
		listUsedPeriods: (query) => readOfView("listUsedPeriods", query, listUsedPeriods, ["usage"]),
		listModelUsage: () => readOfView("listModelUsage", undefined, listModelUsage, ["usage"]),
		listUsageTotals: (after) => readOfView("listUsageTotals", after, listUsageTotals, ["usage"]),
		getRetentionTime: () => read("getRetentionTime", readRetentionTime),
		saveRetentionTime: (time) => run(() => logged("saveRetentionTime", write(saveRetentionTime(time)))),
		compactEvents: async (after) =>
			await compactStep(await read("compactEvents", (session) => findTexts(session, after)), (range) =>
				run(async () => {
					const writing = connections.transaction((transaction) => transaction.commit(writeTextsQuery(range)));
					await logged("compactEvents", writing);
				}),
			),
		// PostgreSQL itself uses the space of former rows again.
		returnSpace: async () => ({ returnedBytes: 0n, freeBytes: 0n, hasMore: false }),
		check: () => run(() => write(touchWriter(checkId))),
		close,
		[Symbol.asyncDispose]: close,
	};
}
