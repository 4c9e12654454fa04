import { ServiceError } from "../../errors.ts";
import { failureOf } from "../../threads/failure.ts";
import { type Calls, compact, release } from "../../threads/protocol.ts";
import { type ThreadLog, WorkerThread } from "../../threads/worker-thread.ts";
import type {
	Appended,
	ConversationQuery,
	IsSameRecord,
	NewUpdate,
	PrunePolicy,
	RangeQuery,
	SequenceRange,
	Store,
	StoredConversation,
	StoredUpdate,
	UpdateQuery,
} from "../store.ts";
import type { JudgedRepetition, PossibleRepetition, ReaderCalls, WriterCalls } from "./calls.ts";
import { type DatabaseOptions, prepareFiles } from "./database.ts";
import { lockDatabase } from "./lock.ts";
import { Pruner } from "./pruner.ts";
import { storeError, unavailable } from "./result-codes.ts";

/** Settings that the database file has no say in. */
export interface SqliteOptions {
	/** Judges records that may be a repetition. When left out, only records with the same bytes are repetitions. */
	readonly isSame?: IsSameRecord;
	/** How long a write waits for another process's lock, in milliseconds. 2000 when left out. */
	readonly lockTimeout?: number;
	/** Largest size that the database file may reach, in bytes. No bound but the disk's when left out. */
	readonly maxBytes?: number;
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
	const { isSame = async () => false, lockTimeout = 2_000, maxBytes } = options;
	try {
		prepareFiles(path);
	} catch (error) {
		throw unavailable({ ...failureOf(error), code: 14 });
	}
	const lock = lockDatabase(path, lockTimeout);
	const store = new SqliteStore({ path, lockTimeout, maxBytes }, log, isSame, lock);
	try {
		await store.open();
	} catch (error) {
		await store.close();
		throw error;
	}
	return store;
}

/**
 * Most judgements of one record. Each is about another newest update, so the conversation has that many posts at a time,
 * and none of them is the newest for certain.
 */
const MAX_JUDGEMENTS = 3;

class SqliteStore implements Store {
	readonly #writer: WorkerThread<WriterCalls>;
	readonly #reader: WorkerThread<ReaderCalls>;
	readonly #pruner: Pruner;
	readonly #log: ThreadLog;
	readonly #isSame: IsSameRecord;
	readonly #lock: Disposable;
	readonly #listeners = new Set<(newest: bigint) => void>();
	#newest = 0n;
	#announcing = false;

	constructor(options: DatabaseOptions, log: ThreadLog, isSame: IsSameRecord, lock: Disposable) {
		const thread = <Methods extends Calls>(name: string, youngGenerationMb: number, repeatable: boolean) =>
			new WorkerThread<Methods>({
				owner: "the store",
				name,
				script: new URL(`./${name}`, import.meta.url),
				data: options,
				toError: (failure, of) => (of === "call" ? storeError(failure) : unavailable(failure)),
				log,
				youngGenerationMb,
				repeatable,
			});
		this.#writer = thread("writer", 12, false);
		this.#reader = thread("reader", 24, true);
		this.#log = log;
		this.#isSame = isSame;
		this.#lock = lock;
		this.#pruner = new Pruner(this.#writer, this.#reader);
	}

	async open(): Promise<void> {
		// The writer creates the tables, so the reader comes second.
		await this.#writer.start();
		await this.#reader.start();
	}

	async append(update: NewUpdate): Promise<Appended> {
		const { record, summary } = update;
		const own = { ...update, record: { ...record, bytes: compact(record.bytes) }, summary: compact(summary) };
		let judged: JudgedRepetition | undefined;
		for (let judgements = 0; ; judgements += 1) {
			const answer = await this.#writer.call("append", { update: own, judged });
			if ("sequence" in answer) {
				if (!answer.repeated) this.#announce(answer.sequence);
				release(own.record.bytes);
				release(own.summary);
				return answer;
			}
			judged = judgements < MAX_JUDGEMENTS ? await this.#judge(answer, record.bytes) : { sequence: "any", same: false };
		}
	}

	get(conversationId: string, asOf?: bigint): Promise<StoredUpdate | undefined> {
		return this.#reader.call("get", { conversationId, asOf });
	}

	listConversations(query: ConversationQuery): Promise<StoredConversation[]> {
		return this.#reader.call("listConversations", query);
	}

	listUpdates(query: UpdateQuery): Promise<StoredUpdate[]> {
		return this.#reader.call("listUpdates", query);
	}

	range(query: RangeQuery = {}): Promise<SequenceRange> {
		return this.#reader.call("range", query);
	}

	subscribe(listener: (newest: bigint) => void): () => void {
		// Wrapped, so that each subscription ends by itself even if a listener is given twice.
		const own = (newest: bigint) => listener(newest);
		this.#listeners.add(own);
		return () => this.#listeners.delete(own);
	}

	prune(policy: PrunePolicy): Promise<number> {
		return this.#pruner.step(policy);
	}

	async check(): Promise<void> {
		await Promise.all([this.#writer.call("check", undefined), this.#reader.call("range", {})]);
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

	async #judge({ possiblyRepeats, record }: PossibleRepetition, arriving: Uint8Array): Promise<JudgedRepetition> {
		try {
			return { sequence: possiblyRepeats, same: await this.#isSame(record, arriving) };
		} catch (error) {
			if (error instanceof ServiceError && error.kind === "unavailable") throw error;
			// A stored record that cannot be compared is no reason to refuse another one.
			return { sequence: possiblyRepeats, same: false };
		}
	}

	// The answers of one commit arrive together; the listeners hear of them once.
	#announce(sequence: bigint): void {
		if (sequence > this.#newest) this.#newest = sequence;
		if (this.#announcing) return;
		this.#announcing = true;
		queueMicrotask(() => {
			this.#announcing = false;
			for (const listener of this.#listeners) {
				try {
					listener(this.#newest);
				} catch (error) {
					this.#log.error({ err: error }, "a listener of the store failed");
				}
			}
		});
	}
}
