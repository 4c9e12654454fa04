import { ServiceError } from "../../errors.ts";
import { compact, release } from "../../memory.ts";
import {
	type ThreadLog,
	type ThreadObserver,
	WorkerThread,
	type WorkerThreadOptions,
} from "../../threads/worker-thread.ts";
import { Announcer } from "../announcer.ts";
import { appendJudged, type JudgedRepetition } from "../repetition.ts";
import type {
	Appended,
	AppendedEvents,
	ConversationQuery,
	EventQuery,
	IsSameRecord,
	LiveState,
	Log,
	NewEvents,
	NewUpdate,
	PrunePolicy,
	Store,
	StoredConversation,
	StoredEvent,
	StoredUpdate,
	UpdateQuery,
} from "../store.ts";
import { bytesOfBatch, compactBatch } from "./batch.ts";
import type { ReaderCalls, WalLoss, WriterCalls } from "./calls.ts";
import { type DatabaseOptions, prepareFiles, protectFiles, type WriterOptions } from "./database.ts";
import { lockDatabase } from "./lock.ts";
import { Pruner } from "./pruner.ts";
import { storeError, unavailable } from "./result-codes.ts";
import { inspectWal, type WalEnd } from "./wal-end.ts";

/** Settings that the database file has no say in. */
export interface SqliteOptions extends Omit<DatabaseOptions, "path"> {
	/** Judges records that may be a repetition. When left out, only records with the same bytes are repetitions. */
	readonly isSame?: IsSameRecord;
	/** Told when the end of the write-ahead log could not be used, before the store is given. */
	readonly onWalLoss?: (loss: WalLoss) => void;
	/** Is told of the store's threads. */
	readonly observer?: ThreadObserver | undefined;
}

/**
 * Opens the store in a SQLite database file, and creates file and folder when they are missing. Only their owner may
 * read the database's files. One thread writes and one reads. A second store of the same file is refused, because its
 * updates would not reach the listeners of the first.
 *
 * @throws ServiceError `unavailable` when the database cannot be opened, another store has it open, or it is of a newer
 *   release; the cause says why.
 */
export async function openSqliteStore(path: string, log: ThreadLog, options: SqliteOptions = {}): Promise<Store> {
	const { isSame = async () => false, lockTimeout, maxBytes, onWalLoss, observer } = options;
	const real = orUnavailable(() => prepareFiles(path));
	const lock = lockDatabase(real, lockTimeout);
	let walEnd: WalEnd | undefined;
	try {
		walEnd = orUnavailable(() => inspectWal(real));
	} catch (error) {
		lock[Symbol.dispose]();
		throw error;
	}
	const store = new SqliteStore({ path, lockTimeout, maxBytes, walEnd }, { log, observer }, isSame, lock);
	try {
		const loss = await store.open();
		orUnavailable(() => protectFiles(real));
		if (loss !== undefined) onWalLoss?.(loss);
	} catch (error) {
		await store.close();
		throw error;
	}
	return store;
}

/** @throws ServiceError `unavailable` for any error of `work` */
function orUnavailable<Result>(work: () => Result): Result {
	try {
		return work();
	} catch (cause) {
		throw new ServiceError("unavailable", "the store's database cannot be opened", { cause });
	}
}

/** Most reads that the reader has at a time: it reads faster than the main thread makes answers of large records. */
const READ_AHEAD = 64;

class SqliteStore implements Store {
	readonly updates: Log<StoredUpdate, UpdateQuery> = {
		list: (query) => this.#reader.call("listUpdates", query),
		range: (query = {}) => this.#reader.call("range", { log: "updates", query }),
		subscribe: (listener) => this.#updates.subscribe(listener),
	};
	readonly events: Log<StoredEvent, EventQuery> = {
		list: (query) => this.#reader.call("listEvents", query),
		range: (query = {}) => this.#reader.call("range", { log: "events", query }),
		subscribe: (listener) => this.#events.subscribe(listener),
	};
	readonly #writer: WorkerThread<WriterCalls>;
	readonly #reader: WorkerThread<ReaderCalls>;
	readonly #pruner: Pruner;
	readonly #isSame: IsSameRecord;
	readonly #lock: Disposable;
	readonly #updates: Announcer;
	readonly #events: Announcer;

	constructor(
		options: WriterOptions,
		{ log, observer }: Pick<WorkerThreadOptions, "log" | "observer">,
		isSame: IsSameRecord,
		lock: Disposable,
	) {
		const both: Pick<WorkerThreadOptions, "owner" | "data" | "toError" | "log" | "observer"> = {
			owner: "the store",
			data: options,
			toError: (failure, of) => (of === "call" ? storeError(failure) : unavailable(failure)),
			log,
			observer,
		};
		this.#writer = new WorkerThread({
			...both,
			name: "writer",
			script: new URL("./writer", import.meta.url),
			youngGenerationMb: 12,
			repeatable: false,
		});
		this.#reader = new WorkerThread({
			...both,
			name: "reader",
			script: new URL("./reader", import.meta.url),
			youngGenerationMb: 24,
			repeatable: true,
			window: READ_AHEAD,
		});
		this.#updates = new Announcer(log);
		this.#events = new Announcer(log);
		this.#isSame = isSame;
		this.#lock = lock;
		this.#pruner = new Pruner(this.#writer, this.#reader);
	}

	/** Starts the threads. Gives what was lost of the write-ahead log. */
	async open(): Promise<WalLoss | undefined> {
		// The writer creates the tables, so the reader comes second.
		await this.#writer.start();
		await this.#reader.start();
		return await this.#writer.call("walLoss", undefined);
	}

	async append(update: NewUpdate): Promise<Appended> {
		const { record, summary } = update;
		const own = { ...update, record: { ...record, bytes: compact(record.bytes) }, summary: compact(summary) };
		const attempt = (judged: JudgedRepetition | undefined) => this.#writer.call("append", { update: own, judged });
		const appended = await appendJudged(attempt, record.bytes, this.#isSame);
		if (!appended.repeated) this.#updates.announce(appended.sequence);
		release(own.record.bytes);
		release(own.summary);
		return appended;
	}

	async appendEvents(batch: NewEvents): Promise<AppendedEvents | undefined> {
		const own = compactBatch(batch);
		const appended = await this.#writer.call("appendEvents", own);
		if (appended === undefined) return undefined;
		for (const bytes of bytesOfBatch(own)) release(bytes);
		if (appended.stored > 0) this.#events.announce(appended.newest);
		if (appended.updateSequence !== undefined) this.#updates.announce(appended.updateSequence);
		return appended;
	}

	getLiveState(conversationId: string, eventIds: readonly string[]): Promise<LiveState> {
		return this.#reader.call("getLiveState", { conversationId, eventIds });
	}

	listUnapplied(limit: number): Promise<readonly string[]> {
		return this.#reader.call("listUnapplied", limit);
	}

	get(conversationId: string, asOf?: bigint): Promise<StoredUpdate | undefined> {
		return this.#reader.call("get", { conversationId, asOf });
	}

	listConversations(query: ConversationQuery): Promise<StoredConversation[]> {
		return this.#reader.call("listConversations", query);
	}

	prune(policy: PrunePolicy): Promise<number> {
		return this.#pruner.step(policy);
	}

	pruneEvents(receivedBefore: bigint, limit: number): Promise<number> {
		return this.#pruner.events(receivedBefore, limit);
	}

	async check(): Promise<void> {
		await Promise.all([
			this.#writer.call("check", undefined),
			this.#reader.call("range", { log: "updates", query: {} }),
		]);
	}

	clock(): Promise<bigint | undefined> {
		return this.#reader.call("clock", undefined);
	}

	keepClock(time: bigint): Promise<void> {
		return this.#writer.call("keepClock", time);
	}

	async close(): Promise<void> {
		this.#writer.refuse();
		// Only alone can the writer empty the write-ahead log.
		await this.#reader.close();
		await this.#writer.close();
		this.#lock[Symbol.dispose]();
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.close();
	}
}
