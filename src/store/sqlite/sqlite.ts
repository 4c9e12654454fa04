import { existsSync, rmSync, statSync } from "node:fs";
import { ServiceError } from "../../errors.ts";
import { compact, release } from "../../memory.ts";
import {
	type ThreadLogger,
	type ThreadObserver,
	WorkerThread,
	type WorkerThreadOptions,
} from "../../threads/worker-thread.ts";
import { appendJudged, byteStringsOf, compactBatch, type IsSameRecord, type Judgement } from "../duplicates.ts";
import { packEvents } from "../record-column.ts";
import { Announcer } from "../sequence-log.ts";
import { methodsOf, Running, type Store, viewReads } from "../store.ts";
import { type FollowGoal, NOTHING } from "../views/follow.ts";
import {
	type DatabaseOptions,
	lockDatabase,
	prepareFiles,
	protectFiles,
	requireFinished,
	requireIntact,
	storeError,
	unavailable,
} from "./database.ts";
import type { ReaderCalls } from "./reader.ts";
import type { WriterCalls } from "./writer.ts";

/** Options of {@link openSqliteStore}. None of them is stored in the database file. */
export interface SqliteOptions extends Omit<DatabaseOptions, "path"> {
	/** Decides whether a record with other bytes repeats a stored one. When left out, no such record does. */
	readonly isSameRecord?: IsSameRecord;
	/** Observes the store's threads. */
	readonly observer?: ThreadObserver | undefined;
}

/**
 * Opens the store in a SQLite database file. Creates the file and its folder if they do not exist. Only their owner may
 * read the database's files. One thread writes, one reads, and one searches. A second store cannot open the same file, because
 * its updates would not reach the listeners of the first.
 *
 * @throws ServiceError `unavailable` when the database cannot be opened, another store has it open, a newer release
 *   wrote it, its file was emptied or has several hard links, or an import into it is not finished; the cause says which.
 */
export async function openSqliteStore(path: string, log: ThreadLogger, options: SqliteOptions = {}): Promise<Store> {
	const { isSameRecord = async () => false, lockTimeout, maxBytes, observer } = options;
	orUnavailable(() => requireIntact(path));
	const isNew = !existsSync(path);
	const realPath = orUnavailable(() => prepareFiles(path));
	const lock = lockDatabase(realPath, lockTimeout);
	let store: Store | undefined;
	try {
		orUnavailable(() => requireFinished(realPath));
		const data: DatabaseOptions = { path, lockTimeout, maxBytes };
		const threads = threadsOf({ data, log, observer });
		const { writer, reader } = threads;
		store = storeOf(threads, lock, log, isSameRecord);
		// The writer creates the tables, so it starts before the reader.
		await writer.start();
		await reader.start();
		orUnavailable(() => protectFiles(realPath));
		return store;
	} catch (error) {
		// An empty file that stayed would look like an emptied database at the next start.
		if (isNew && statSync(realPath, { throwIfNoEntry: false })?.size === 0) rmSync(realPath);
		if (store === undefined) lock[Symbol.dispose]();
		else await store.close();
		throw error;
	}
}

/** @throws ServiceError `unavailable` when `work` throws any error */
function orUnavailable<Result>(work: () => Result): Result {
	try {
		return work();
	} catch (cause) {
		throw new ServiceError("unavailable", "the store's database cannot be opened", { cause });
	}
}

/** Number of posts that should share a transaction: it takes 0.35 ms for one record and 0.53 ms for four. */
const APPENDED_TOGETHER = 4;
/** For four batches of five events a transaction takes 0.8 ms, which is longer than the main thread takes to parse them. */
const SENT_AHEAD: readonly (keyof WriterCalls)[] = ["appendEvents"];

/** Maximum number of calls at the reader. It reads large records faster than the main thread can encode responses. */
const MAX_READER_CALLS = 64;

/** The calls of readers that read a view. */
const VIEW_READS: readonly string[] = Object.keys(viewReads);

/** Milliseconds without a search after which the thread for it ends. */
const SEARCH_IDLE = 60_000;

interface Threads {
	readonly writer: WorkerThread<WriterCalls>;
	readonly reader: WorkerThread<ReaderCalls>;
	/** Reads the index of words, so that a search for which much is read does not delay other reads. */
	readonly search: WorkerThread<ReaderCalls>;
}

function threadsOf(options: Pick<WorkerThreadOptions, "data" | "log" | "observer">): Threads {
	const shared: Omit<WorkerThreadOptions, "name" | "script" | "youngGenerationMiB"> = {
		...options,
		owner: "the store",
		toError: (failure, of) => (of === "call" ? storeError(failure) : unavailable(failure)),
	};
	const writer = { name: "writer", script: new URL("./writer", import.meta.url), youngGenerationMiB: 36 };
	const reader = { name: "reader", script: new URL("./reader", import.meta.url), youngGenerationMiB: 24 };
	const search = { ...reader, name: "search", idleMilliseconds: SEARCH_IDLE };
	return {
		writer: new WorkerThread({ ...shared, ...writer, sendsTogether: APPENDED_TOGETHER, sentAhead: SENT_AHEAD }),
		reader: new WorkerThread({ ...shared, ...reader, maxCallsSent: MAX_READER_CALLS }),
		// One at a time, so that it is known which search ended the thread, and the others can go on.
		search: new WorkerThread({ ...shared, ...search, maxCallsSent: 1 }),
	};
}

/** Returns a store that uses the threads; the caller starts writer and reader. Closing the store releases the lock. */
function storeOf(
	{ writer, reader, search }: Threads,
	lock: Disposable,
	log: ThreadLogger,
	isSameRecord: IsSameRecord,
): Store {
	const [updates, events] = [new Announcer(log), new Announcer(log)];
	/** Reads of views, which may wait for the writer. */
	const running = new Running();

	/** Lets the views follow the logs. Appends go on between its calls. */
	async function follow(goal: FollowGoal): Promise<void> {
		while (await writer.calls.follow(goal));
	}

	async function close(): Promise<void> {
		const ended = running.close();
		writer.refuse(["follow"] satisfies (keyof WriterCalls)[]);
		reader.refuse(VIEW_READS);
		search.refuse(VIEW_READS);
		await ended;
		// The writer can empty the write-ahead log only after the others have closed their connections.
		await Promise.all([reader.close(), search.close()]);
		await writer.close();
		lock[Symbol.dispose]();
	}

	return {
		...methodsOf({
			read: reader.calls,
			view: reader.calls,
			write: writer.calls,
			find: (of, signal) => search.calls.findDocuments(of, signal),
			// One process has the database open.
			claim: async () => true,
			follow,
			running,
			subscribe: (log, listener) => (log === "updates" ? updates : events).subscribe(listener),
		}),
		async append(update, signal) {
			const { record, summary } = update;
			const compacted = { ...update, record: { ...record, bytes: compact(record.bytes) }, summary: compact(summary) };
			const attempt = (judged: Judgement | undefined) =>
				writer.calls.append({ update: compacted, judged, senderDeadline: signal?.deadline }, signal);
			const appended = await appendJudged(attempt, record.bytes, isSameRecord);
			if (!appended.duplicate) updates.announce(appended.sequence);
			release(compacted.record.bytes);
			release(compacted.summary);
			return appended;
		},
		async appendEvents(batch, signal) {
			const compacted = compactBatch(batch);
			const packed = compactBatch(await packEvents(compacted));
			const appended = await writer.calls.appendEvents({ ...packed, senderDeadline: signal?.deadline }, signal);
			if (appended === undefined) return undefined;
			for (const bytes of [packed, compacted].flatMap(byteStringsOf)) release(bytes);
			if (appended.stored > 0) events.announce(appended.newest);
			if (appended.updateSequence !== undefined) updates.announce(appended.updateSequence);
			return appended;
		},
		async assignOwner(assignment) {
			const assigned = await writer.calls.assignOwner(assignment);
			if (assigned > 0) for (const log of [updates, events]) log.announceRewrite();
			return assigned;
		},
		async erase(request) {
			const erased = await writer.calls.erase(request);
			if (erased?.erasure === undefined) return erased;
			for (const log of [updates, events]) log.announceRewrite();
			updates.announce(erased.erasure.sequence);
			return erased;
		},
		async purge() {
			while (await writer.calls.purge());
		},
		async resetViews(views) {
			await writer.calls.resetViews(views);
			await follow(NOTHING);
		},
		returnSpace: () => writer.calls.returnSpace(),
		async check() {
			await Promise.all([writer.calls.check(), reader.calls.readRange({ log: "updates" })]);
		},
		close,
		[Symbol.asyncDispose]: close,
	};
}
