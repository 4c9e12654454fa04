import { serve } from "../../threads/serve.ts";
import type { EventQuery } from "../events.ts";
import type { PrunableQuery, RemovalBounds } from "../pruner.ts";
import type { RefusedQuery } from "../refused-posts.ts";
import type { LogTable, RangeQuery } from "../sequence-log.ts";
import type { Session } from "../session.ts";
import { callsOf } from "../session-calls.ts";
import { sideReads } from "../side-tables.ts";
import type { UpdateQuery } from "../updates.ts";
import type { ViewName } from "../views/follow.ts";
import { listViews, type ViewAnswer, type ViewQuery } from "../views/read-view.ts";
import type { RecordStateRequest } from "./calls.ts";
import { findTexts } from "./compaction.ts";
import { type DatabaseOptions, openForReading, transaction, transactionAsync } from "./database.ts";
import { findErasure } from "./erasures.ts";
import { listEvents, readEvents } from "./events.ts";
import { findGaps } from "./gaps.ts";
import { countConversations, listConversations } from "./list-conversations.ts";
import { firstReceivedSince, readRange, readRetentionTime } from "./log.ts";
import { countWithoutSender } from "./owners.ts";
import { findDeleted, findPrunable } from "./prunable.ts";
import { getOrigin, getRecordState, listUnapplied } from "./record-state.ts";
import { getRefusedPost, listRefusedPosts, refusedUsage } from "./refused-posts.ts";
import { listSenders } from "./senders.ts";
import { sqliteSession } from "./session.ts";
import { Statements } from "./statements.ts";
import { findChangedTitles, findDocuments, readProgress } from "./text-index.ts";
import { getUpdate, listUpdates, type UpdateOf } from "./updates.ts";
import { getUsageRange, listModelUsage, listUsageTotals, listUsedPeriods, reportUsage } from "./usage-report.ts";
import { newestIfBehind } from "./views.ts";

/** Entry point of the reader thread. Each call reads one snapshot of the database. */

/** The calls that the reader thread answers. */
export type ReaderCalls = ReturnType<typeof reader>["methods"];

function reader(options: DatabaseOptions) {
	const database = openForReading(options);
	const statements = new Statements(database);
	const session = sqliteSession(statements);

	function read<Result>(work: () => Result): Result {
		return transaction(database, "BEGIN", work);
	}

	/** As {@link read}, for work with a session. */
	function readInSession<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
		return transactionAsync(database, "BEGIN", () => work(session));
	}

	/** Reads views, by default that of conversations, unless one is behind. */
	function readView<Query, Result>(
		work: (statements: Statements, query: Query) => Result,
		views: readonly ViewName[] = ["conversations"],
	) {
		return ({ query, isFollowed }: ViewQuery<Query>) =>
			read((): ViewAnswer<Result> => {
				const behind = isFollowed ? undefined : newestIfBehind(statements, views);
				return behind === undefined ? { result: work(statements, query) } : { behind };
			});
	}

	return {
		methods: {
			get: (query: UpdateOf) => read(() => getUpdate(statements, query)),
			listConversations: readView(listConversations),
			countConversations: readView(countConversations),
			listViews: () => readInSession(listViews),
			listUpdates: (query: UpdateQuery) => read(() => listUpdates(statements, query)),
			listEvents: (query: EventQuery) => read(() => listEvents(statements, query)),
			readEvents: (sequences: readonly bigint[]) => read(() => readEvents(statements, sequences)),
			findChangedTitles: (after: bigint) => read(() => findChangedTitles(statements, after)),
			readIndexProgress: () => read(() => readProgress(statements)),
			findTexts: (after: bigint) => read(() => findTexts(statements, after)),
			findDocuments: readView(findDocuments),
			getRecordState: (request: RecordStateRequest) => read(() => getRecordState(statements, request)),
			getErasure: (conversationId: string) => read(() => findErasure(statements, conversationId)),
			getOrigin: (conversationId: string) => read(() => getOrigin(statements, conversationId)),
			countWithoutSender: () => read(() => countWithoutSender(statements)),
			listGaps: (conversationId: string) => read(() => [...findGaps(statements, conversationId).values()]),
			listUnapplied: (limit: number) => read(() => listUnapplied(statements, limit)),
			listSenders: readView(listSenders),
			listRefusedPosts: (query: RefusedQuery) => read(() => listRefusedPosts(statements, query)),
			getRefusedPost: (one: { readonly id: bigint; readonly owner: string | undefined }) =>
				read(() => getRefusedPost(statements, one)),
			refusedUsage: () => read(() => refusedUsage(statements)),
			reportUsage: readView(reportUsage, ["usage", "conversations"]),
			getUsageRange: readView(getUsageRange, ["usage"]),
			listUsedPeriods: readView(listUsedPeriods, ["usage"]),
			listModelUsage: readView(listModelUsage, ["usage"]),
			listUsageTotals: readView(listUsageTotals, ["usage"]),
			// Each is one statement, so it reads one state of the database.
			...callsOf(sideReads, (_, work) => work(session)),
			getRetentionTime: () => read(() => readRetentionTime(statements)),
			range: ({ log, query }: { readonly log: LogTable; readonly query: RangeQuery }) =>
				read(() => readRange(statements, log, query)),
			/** Returns a sequence number: entries below it were received before `time`, in microseconds since the epoch. */
			firstReceivedSince: ({ log, time }: { readonly log: LogTable; readonly time: bigint }) =>
				read(() => firstReceivedSince(statements, log, time)),
			findPrunable: (query: PrunableQuery<bigint>) => read(() => findPrunable(statements, query)),
			/** Returns the ids of conversations whose deletion is old enough. */
			findDeleted: readView((_, bounds: RemovalBounds) =>
				findDeleted(statements, bounds).map(({ conversationId }) => conversationId),
			),
		},
		close: () => database.close(),
	};
}

serve(reader);
