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
import type { IsSameRecord, Store } from "../store.ts";
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
	const data: WriterOptions = { path, lockTimeout, maxBytes, walEnd };
	const [writer, reader] = threadsOf({ data, log, observer });
	const store = storeOf(writer, reader, lock, log, isSame);
	try {
		// The writer creates the tables, so the reader comes second.
		await writer.start();
		await reader.start();
		const loss = await writer.call("walLoss", undefined);
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

function threadsOf(
	options: Pick<WorkerThreadOptions, "data" | "log" | "observer">,
): [WorkerThread<WriterCalls>, WorkerThread<ReaderCalls>] {
	const both: Omit<WorkerThreadOptions, "name" | "script" | "youngGenerationMb" | "repeatable"> = {
		...options,
		owner: "the store",
		toError: (failure, of) => (of === "call" ? storeError(failure) : unavailable(failure)),
	};
	const writer = { name: "writer", script: new URL("./writer", import.meta.url), youngGenerationMb: 12 };
	const reader = { name: "reader", script: new URL("./reader", import.meta.url), youngGenerationMb: 24 };
	return [
		new WorkerThread({ ...both, ...writer, repeatable: false }),
		new WorkerThread({ ...both, ...reader, repeatable: true, window: READ_AHEAD }),
	];
}

/** The store of two threads that are to be started. It gives the lock back when it is closed. */
function storeOf(
	writer: WorkerThread<WriterCalls>,
	reader: WorkerThread<ReaderCalls>,
	lock: Disposable,
	log: ThreadLog,
	isSame: IsSameRecord,
): Store {
	const pruner = new Pruner(writer, reader);
	const [updates, events] = [new Announcer(log), new Announcer(log)];

	async function close(): Promise<void> {
		writer.refuse();
		// Only alone can the writer empty the write-ahead log.
		await reader.close();
		await writer.close();
		lock[Symbol.dispose]();
	}

	return {
		updates: {
			list: (query) => reader.call("listUpdates", query),
			range: (query = {}) => reader.call("range", { log: "updates", query }),
			subscribe: (listener) => updates.subscribe(listener),
		},
		events: {
			list: (query) => reader.call("listEvents", query),
			range: (query = {}) => reader.call("range", { log: "events", query }),
			subscribe: (listener) => events.subscribe(listener),
		},
		async append(update) {
			const { record, summary } = update;
			const own = { ...update, record: { ...record, bytes: compact(record.bytes) }, summary: compact(summary) };
			const attempt = (judged: JudgedRepetition | undefined) => writer.call("append", { update: own, judged });
			const appended = await appendJudged(attempt, record.bytes, isSame);
			if (!appended.repeated) updates.announce(appended.sequence);
			release(own.record.bytes);
			release(own.summary);
			return appended;
		},
		async appendEvents(batch) {
			const own = compactBatch(batch);
			const appended = await writer.call("appendEvents", own);
			if (appended === undefined) return undefined;
			for (const bytes of bytesOfBatch(own)) release(bytes);
			if (appended.stored > 0) events.announce(appended.newest);
			if (appended.updateSequence !== undefined) updates.announce(appended.updateSequence);
			return appended;
		},
		getLiveState: (conversationId, eventIds) => reader.call("getLiveState", { conversationId, eventIds }),
		listUnapplied: (limit) => reader.call("listUnapplied", limit),
		get: (conversationId, asOf) => reader.call("get", { conversationId, asOf }),
		listConversations: (query) => reader.call("listConversations", query),
		prune: (policy) => pruner.step(policy),
		pruneEvents: (receivedBefore, limit) => pruner.events(receivedBefore, limit),
		clock: () => reader.call("clock", undefined),
		keepClock: (time) => writer.call("keepClock", time),
		async check() {
			await Promise.all([writer.call("check", undefined), reader.call("range", { log: "updates", query: {} })]);
		},
		close,
		[Symbol.asyncDispose]: close,
	};
}
