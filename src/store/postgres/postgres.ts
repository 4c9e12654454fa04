import { type CallSignal, isSenderGone, SENDER_GONE } from "../../errors.ts";
import type { ThreadLogger, ThreadObserver } from "../../threads/worker-thread.ts";
import { assignOwner } from "../assign-owner.ts";
import { appendJudged, type IsSameRecord } from "../duplicates.ts";
import { erase } from "../erase.ts";
import { packEvents } from "../record-column.ts";
import { type Session as AnySession, callsOf } from "../session.ts";
import { methodsOf, Running, reads, type Store, viewReads, writes } from "../store.ts";
import { isConversationId } from "../values.ts";
import { type FollowGoal, FollowTimer, furtherGoal, NOTHING } from "../views/follow.ts";
import { resetViews, ViewFollower } from "../views/views.ts";
import { Appender } from "./appender.ts";
import { requireOneConnection } from "./citus.ts";
import type { Connections } from "./connections.ts";
import { serviceError } from "./failures.ts";
import { commitRewrite, EntryAnnouncer, readPositions, settledSequences, touchState } from "./log.ts";
import { migrate } from "./schema.ts";
import { postgresSession } from "./session.ts";

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
 * @throws ServiceError `unavailable` when the database cannot be reached or migrated, or has the schema of a newer release; the
 *   cause says why
 */
export async function openPostgresStore(
	connections: Connections,
	log: ThreadLogger,
	options: PostgresOptions = {},
): Promise<Store> {
	const { isSameRecord = async () => false, observer } = options;
	try {
		await migrate(connections, options.distribute);
		await connections.read(async (session) => {
			await requireOneConnection(session);
			// From now on each transaction knows it at once.
			await session.spread.isDistributed(session);
		});
	} catch (error) {
		await connections[Symbol.asyncDispose]();
		throw error;
	}
	return storeOf(connections, log, isSameRecord, observer);
}

function storeOf(
	connections: Connections,
	log: ThreadLogger,
	isSameRecord: IsSameRecord,
	observer: ThreadObserver | undefined,
): Store {
	const follower = new Following(connections, (error) =>
		log.error({ err: serviceError(error), operation: "follow", count: 1 }, "the store failed"),
	);
	const announcer = new EntryAnnouncer(connections, log, () =>
		run(() => connections.read(async (session) => (await settledSequences(session)) ?? (await readPositions(session)))),
	);
	const appender = new Appender(connections, log, (newest) => announcer.announce(newest), observer);
	for (const log of ["updates", "events"] as const) announcer.subscribe(log, () => follower.schedule());
	const running = new Running();
	const run = <T>(work: () => Promise<T>) => running.run(work);
	let closed: Promise<void> | undefined;

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

	const read = <T>(operation: string, work: (session: AnySession) => Promise<T>) =>
		logged(
			operation,
			connections.read((session) => work(postgresSession(session))),
		);
	const write = <T>(operation: string, work: (session: AnySession) => Promise<T>) =>
		logged(
			operation,
			connections.transaction((transaction) => work(postgresSession(transaction))),
		);

	const limits = (signal: CallSignal | undefined) => ({ signal, until: performance.now() + WRITE_TIMEOUT });

	/**
	 * Runs work that rewrites stored entries, and lets the readers of all processes know.
	 *
	 * @param isRewritten whether the work, whose result is passed, has rewritten some
	 */
	async function rewrite<Result>(
		operation: string,
		work: (session: AnySession) => Promise<Result>,
		isRewritten: (result: Result) => boolean,
	): Promise<Result> {
		const rewriting = connections.transaction(async (transaction) => {
			const result = await work(postgresSession(transaction));
			return isRewritten(result)
				? { result, rewrites: await commitRewrite(transaction, connections.notifies) }
				: { result };
		});
		const { result, rewrites } = await logged(operation, rewriting);
		if (rewrites !== undefined) announcer.announceRewrite(rewrites);
		return result;
	}

	async function finish(): Promise<void> {
		await running.close();
		await follower.close();
		await connections[Symbol.asyncDispose]();
	}
	const close = () => (closed ??= finish());

	const writing = callsOf(writes, (name, work) => run(() => write(name, work)));

	return {
		...methodsOf({
			read: callsOf(reads, (name, work) => run(() => read(name, work))),
			view: callsOf(viewReads, read),
			write: writing,
			async find(of, signal) {
				// The read may have waited for a connection.
				const found = await read("findDocuments", async (session) =>
					isSenderGone(signal) ? undefined : await viewReads.findDocuments(session, of),
				);
				if (found === undefined) throw SENDER_GONE;
				return found;
			},
			claim: writing.claim,
			follow: (goal) => logged("follow", follower.follow(goal)),
			running,
			subscribe: (log, listener) => announcer.subscribe(log, listener),
		}),
		append: (update, signal) =>
			run(() => {
				const limited = { update, ...limits(signal) };
				return appendJudged(
					async (judged) => await appender.append({ ...limited, judged }),
					update.record.bytes,
					isSameRecord,
				);
			}),
		appendEvents: (batch, signal) =>
			run(async () => await appender.append({ ...(await packEvents(batch)), ...limits(signal) })),
		assignOwner: (assignment) =>
			run(async () => {
				const assign = (session: AnySession) => assignOwner(session, assignment);
				return (await rewrite("assignOwner", assign, (ids) => ids.length > 0)).length;
			}),
		erase: (request) =>
			run(async () => {
				await logged("follow", follower.follow(NOTHING));
				if (!isConversationId(request.conversationId)) return undefined;
				const work = (session: AnySession) => erase(session, request);
				const erased = await rewrite("erase", work, (done) => done?.erasure !== undefined);
				if (erased?.erasure !== undefined) announcer.announce({ updates: erased.erasure.sequence, events: 0n });
				return erased;
			}),
		// The server removes the rows from its files: see docs/operations.md.
		purge: async () => undefined,
		resetViews: (views) =>
			run(async () => {
				await write("resetViews", (session) => resetViews(session, views));
				await logged("resetViews", follower.follow(NOTHING));
			}),
		// PostgreSQL itself uses the space of former rows again.
		returnSpace: async () => ({ returnedBytes: 0n, freeBytes: 0n, hasMore: false }),
		check: () =>
			run(async () => {
				// Only a commit that the server confirms proves that the database can write.
				await connections.transaction((transaction) => transaction.commit(touchState));
			}),
		close,
		[Symbol.asyncDispose]: close,
	};
}

/** Lets the views follow the logs, for reads that wait, and in the background. */
class Following {
	readonly #timer = new FollowTimer();
	readonly #follower: ViewFollower;
	readonly #onError: (error: unknown) => void;
	#isClosed = false;
	#running: Promise<void> = Promise.resolve();
	/** The run that has not begun, for all who wait. */
	#next: Promise<void> | undefined;
	/** The goal of the next run. */
	#goal: FollowGoal = "round";

	constructor(connections: Connections, onError: (error: unknown) => void) {
		this.#follower = new ViewFollower((work) =>
			connections.transaction((transaction) => work(postgresSession(transaction))),
		);
		this.#onError = onError;
	}

	/** Lets the views follow. Resolves when they have reached the goal. */
	follow(goal: FollowGoal): Promise<void> {
		this.#timer.onRead();
		return this.#follow(goal);
	}

	#follow(goal: FollowGoal): Promise<void> {
		this.#goal = furtherGoal(this.#goal, goal);
		if (this.#next === undefined) {
			this.#next = this.#running.catch(() => undefined).then(() => this.#run());
			// Who waits for it hears of a failure.
			this.#next.catch(() => undefined);
			this.#running = this.#next;
		}
		return this.#next;
	}

	/** Lets the views follow after a while. */
	schedule(): void {
		if (this.#isClosed) return;
		this.#timer.onAppend(() => this.#follow("round").catch(this.#onError));
	}

	async close(): Promise<void> {
		this.#isClosed = true;
		this.#timer.stop();
		await this.#running.catch(() => undefined);
	}

	async #run(): Promise<void> {
		const goal = this.#goal;
		this.#goal = "round";
		this.#next = undefined;
		for (let hasMore = !this.#isClosed; hasMore; ) hasMore = await this.#follower.step(goal);
	}
}
