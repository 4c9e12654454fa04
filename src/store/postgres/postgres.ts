import { randomUUID } from "node:crypto";
import { ServiceError } from "../../errors.ts";
import type { ThreadLog, ThreadObserver } from "../../threads/worker-thread.ts";
import { Announcer } from "../announcer.ts";
import { appendJudged } from "../repetition.ts";
import type {
	Appended,
	AppendedEvents,
	ConversationQuery,
	EventQuery,
	IsSameRecord,
	LiveState,
	Log,
	LogListener,
	NewEvents,
	NewUpdate,
	PrunePolicy,
	Store,
	StoredConversation,
	StoredEvent,
	StoredUpdate,
	UpdateQuery,
} from "../store.ts";
import { Appender } from "./appender.ts";
import type { Connections } from "./connections.ts";
import { listEvents } from "./events.ts";
import { serviceError } from "./failures.ts";
import { batchAnswer, updateAnswer } from "./group-answers.ts";
import { listConversations } from "./list-conversations.ts";
import { getLiveState, listUnapplied } from "./live-state.ts";
import { keepClock, readClock, readNewest, readRange } from "./log.ts";
import { migrate } from "./migrate.ts";
import { CHANNEL } from "./numbered-sql.ts";
import { Pruner } from "./pruner.ts";
import type { Session } from "./transaction.ts";
import { requireFinished } from "./unfinished.ts";
import { getUpdate, listUpdates } from "./updates.ts";
import { forgetWriters, touchWriter } from "./writers.ts";

export interface PostgresOptions {
	/** Judges records that may be a repetition. When left out, only records with the same bytes are repetitions. */
	readonly isSame?: IsSameRecord;
	/** Is told of the appends, as of those of a thread named `writer`. */
	readonly observer?: ThreadObserver | undefined;
}

/**
 * Opens the store in a PostgreSQL database, and creates or migrates its tables. Any number of stores, in any number of
 * processes, may have one database.
 *
 * @param connections the store's own: it closes them
 * @throws ServiceError `unavailable` when the database cannot be reached or migrated, is of a newer release, or holds an
 *   unfinished copy; the cause says why
 */
export async function openPostgresStore(
	connections: Connections,
	log: ThreadLog,
	options: PostgresOptions = {},
): Promise<Store> {
	const { isSame = async () => false, observer } = options;
	const store = new PostgresStore(connections, log, isSame, observer);
	try {
		await migrate(connections);
		await connections.read(requireFinished);
		await connections.transaction((transaction) => transaction.commit(forgetWriters));
	} catch (error) {
		await store.close();
		throw error;
	}
	return store;
}

class PostgresStore implements Store {
	readonly updates: Log<StoredUpdate, UpdateQuery> = {
		list: (query) => this.#read("listUpdates", (session) => listUpdates(session, query)),
		range: (query = {}) => this.#read("range", (session) => readRange(session, "updates", query)),
		subscribe: (listener) => this.#subscribe(this.#updates, listener),
	};
	readonly events: Log<StoredEvent, EventQuery> = {
		list: (query) => this.#read("listEvents", (session) => listEvents(session, query)),
		range: (query = {}) => this.#read("range", (session) => readRange(session, "events", query)),
		subscribe: (listener) => this.#subscribe(this.#events, listener),
	};
	readonly #connections: Connections;
	readonly #log: ThreadLog;
	readonly #isSame: IsSameRecord;
	readonly #updates: Announcer;
	readonly #events: Announcer;
	readonly #appender: Appender;
	readonly #pruner: Pruner;
	/** What is under way. */
	readonly #operations = new Set<Promise<unknown>>();
	/** Id of the row that proves that the store can write. */
	readonly #checkId = randomUUID();
	#listens = false;
	#looking = false;
	/** Whether something was appended since the look that is under way began. */
	#looksAgain = false;
	#closed: Promise<void> | undefined;

	constructor(connections: Connections, log: ThreadLog, isSame: IsSameRecord, observer: ThreadObserver | undefined) {
		this.#connections = connections;
		this.#log = log;
		this.#isSame = isSame;
		this.#updates = new Announcer(log);
		this.#events = new Announcer(log);
		const announce = (newest: { readonly updates: bigint; readonly events: bigint }): void => {
			this.#updates.announce(newest.updates);
			this.#events.announce(newest.events);
		};
		this.#appender = new Appender(connections, log, announce, observer);
		this.#pruner = new Pruner(connections);
	}

	append(update: NewUpdate): Promise<Appended> {
		return this.#run(() =>
			appendJudged(
				async (judged) => updateAnswer(await this.#appender.append({ update, judged })),
				update.record.bytes,
				this.#isSame,
			),
		);
	}

	appendEvents(batch: NewEvents): Promise<AppendedEvents | undefined> {
		return this.#run(async () => batchAnswer(await this.#appender.append(batch)));
	}

	getLiveState(conversationId: string, eventIds: readonly string[]): Promise<LiveState> {
		return this.#read("getLiveState", (session) => getLiveState(session, conversationId, eventIds));
	}

	listUnapplied(limit: number): Promise<readonly string[]> {
		return this.#read("listUnapplied", (session) => listUnapplied(session, limit));
	}

	get(conversationId: string, asOf?: bigint): Promise<StoredUpdate | undefined> {
		return this.#read("get", (session) => getUpdate(session, conversationId, asOf));
	}

	listConversations(query: ConversationQuery): Promise<StoredConversation[]> {
		return this.#read("listConversations", (session) => listConversations(session, query));
	}

	prune(policy: PrunePolicy): Promise<number> {
		return this.#run(() => this.#logged("prune", this.#pruner.step(policy)));
	}

	pruneEvents(receivedBefore: bigint, limit: number): Promise<number> {
		return this.#run(() => this.#logged("pruneEvents", this.#pruner.events(receivedBefore, limit)));
	}

	clock(): Promise<bigint | undefined> {
		return this.#read("clock", readClock);
	}

	keepClock(time: bigint): Promise<void> {
		return this.#run(async () => {
			const kept = this.#connections.transaction((transaction) => transaction.commit(keepClock(time)));
			await this.#logged("keepClock", kept);
		});
	}

	check(): Promise<void> {
		return this.#run(() =>
			this.#connections.transaction(async (transaction) => {
				// Only a commit that the server confirms proves that the next append can be kept.
				await transaction.commit(touchWriter(this.#checkId));
			}),
		);
	}

	close(): Promise<void> {
		this.#closed ??= this.#finish();
		return this.#closed;
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.close();
	}

	async #finish(): Promise<void> {
		await Promise.allSettled([...this.#operations]);
		await this.#connections[Symbol.asyncDispose]();
	}

	#read<T>(operation: string, work: (session: Session) => Promise<T>): Promise<T> {
		return this.#run(() => this.#logged(operation, this.#connections.read(work)));
	}

	/** Runs what {@link close} waits for. */
	async #run<T>(work: () => Promise<T>): Promise<T> {
		if (this.#closed !== undefined) throw new ServiceError("unavailable", "the store is closed");
		const running = work();
		this.#operations.add(running);
		try {
			return await running;
		} finally {
			this.#operations.delete(running);
		}
	}

	/** Logs a failure, and gives it as the error that a caller of the store gets. */
	async #logged<T>(operation: string, running: Promise<T>): Promise<T> {
		try {
			return await running;
		} catch (error) {
			const failure = serviceError(error);
			this.#log.error({ err: failure, operation, count: 1 }, "the store failed");
			throw failure;
		}
	}

	#subscribe(announcer: Announcer, listener: LogListener): () => void {
		if (!this.#listens) {
			this.#listens = true;
			this.#connections.listen(CHANNEL, (payload) => this.#hear(payload));
		}
		return announcer.subscribe(listener);
	}

	/**
	 * Hears that a process has appended, with the newest sequences, or that this may have been missed. Whoever may connect to
	 * the database can notify, so only what is looked up is announced.
	 */
	#hear(payload: string | undefined): void {
		const [, updates, events] = /^(\d{1,19}) (\d{1,19})$/.exec(payload ?? "") ?? [];
		const isKnown =
			updates !== undefined &&
			events !== undefined &&
			BigInt(updates) <= this.#updates.newest &&
			BigInt(events) <= this.#events.newest;
		if (isKnown || this.#closed !== undefined) return;
		if (this.#looking) this.#looksAgain = true;
		else void this.#lookUp();
	}

	/** @param known what was announced before the newest sequence was read, and so was committed then */
	#announce(announcer: Announcer, newest: bigint, known: bigint): void {
		if (newest < known) {
			const message = `the database has lost what came after sequence ${newest}; the newest one was ${known}`;
			this.#log.error({ err: new ServiceError("data_loss", message) }, "the database has lost commits");
			announcer.announceLoss(newest);
		} else announcer.announce(newest);
	}

	async #lookUp(): Promise<void> {
		this.#looking = true;
		try {
			const known = { updates: this.#updates.newest, events: this.#events.newest };
			const newest = await this.#run(() => this.#connections.read(readNewest));
			this.#announce(this.#updates, newest.updates, known.updates);
			this.#announce(this.#events, newest.events, known.events);
		} catch {
			// The next hint or poll looks again; calls say what is wrong with the database.
		} finally {
			this.#looking = false;
			const again = this.#looksAgain;
			this.#looksAgain = false;
			if (again && this.#closed === undefined) void this.#lookUp();
		}
	}
}
