import { type CallSignal, ServiceError } from "../errors.ts";
import { accessKeyReads, accessKeyWrites } from "./access-keys.ts";
import { countWithoutSender } from "./assign-owner.ts";
import { auditReads, auditWrites } from "./audit.ts";
import { budgetReads, budgetWrites } from "./budgets.ts";
import { type Claims, claim } from "./claims.ts";
import { compactEvents } from "./compaction.ts";
import type { Condition } from "./condition.ts";
import { countConversations, listConversations } from "./conversation-lists.ts";
import { findErasures } from "./erasure.ts";
import { forwardingReads, forwardingWrites, REPEATABLE_FORWARDING } from "./forwarding.ts";
import { listGaps } from "./gaps.ts";
import { findTitles, indexReads, indexWrites } from "./index-steps.ts";
import { getOwnership } from "./owners.ts";
import { logReads } from "./read-logs.ts";
import { refusedReads, refusedWrites } from "./refused-posts.ts";
import { findDeleted, type PrunePolicy, Pruner, removalReads, removalWrites } from "./remove.ts";
import { addRefusals, listSenders } from "./senders.ts";
import type { LogListener, LogTable, RangeQuery } from "./sequence-log.ts";
import type { Calls, Session } from "./session.ts";
import type { DocumentQuery, FoundDocument } from "./text-index.ts";
import { getUsageRange, listModelUsage, listUsageTotals, listUsedPeriods, reportUsage } from "./usage-report.ts";
import { listViews, ofViews, readView, type ViewAnswer, type ViewPosition, type ViewQuery } from "./views/follow.ts";

/** The operations of a store that are written once for both engines. Each runs in a transaction of its own. */

/** Operations that read one state of the database. */
export const reads = {
	...auditReads,
	...budgetReads,
	...forwardingReads,
	...accessKeyReads,
	...indexReads,
	...logReads,
	...refusedReads,
	...removalReads,
	countWithoutSender,
	getErasure: async (session: Session, conversationId: string) => (await findErasures(session, [conversationId]))[0],
	getOwnership,
	listGaps,
	listViews,
};

/** Operations that read views. They wait until these have everything that was accepted before. */
export const viewReads = {
	findDeleted: ofViews(findDeleted, "conversations"),
	findTitles: ofViews(findTitles, "conversations"),
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
	...accessKeyWrites,
	...indexWrites,
	...refusedWrites,
	...removalWrites,
	addRefusals,
	claim,
	compactEvents,
};

/** Whether a write need not be on disk before the answer, because it is done again after a crash. */
export function isRepeatable(write: string): boolean {
	return REPEATABLE_WRITES.has(write);
}

const REPEATABLE_WRITES: ReadonlySet<string> = new Set<keyof typeof writes>([
	...REPEATABLE_FORWARDING,
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
	const pruner = new Pruner(calls);
	return {
		...calls,
		findDocuments: (query: DocumentQuery, signal?: CallSignal) => waitForViews(query, (of) => find(of, signal)),
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
