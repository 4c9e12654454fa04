import { mkdir } from "node:fs/promises";
import { dirname, extname } from "node:path";
import { failureOf } from "../../threads/failure.ts";
import { Link, type LinkLog, type LinkOptions } from "../../threads/link.ts";
import type { EncodedUpdate } from "../encoded-update.ts";
import type {
	Appended,
	ConversationQuery,
	PrunePolicy,
	SequenceRange,
	Store,
	StoredConversation,
	StoredUpdate,
	UpdateQuery,
} from "../store.ts";
import { CatchUp } from "./catch-up.ts";
import { Checkpoints } from "./checkpoints.ts";
import type { DatabaseOptions } from "./database.ts";
import { unavailable } from "./failure.ts";
import type { ConversationAnswer, CopyRequest, ReadRequest, UpdateAnswer, WriteRequest } from "./messages.ts";
import { Pruner } from "./pruner.ts";

/** Settings that the database file has no say in. */
export interface SqliteOptions {
	/** How long a write waits for another process's lock, in milliseconds. 2000 when left out. */
	readonly lockTimeout?: number;
	/** Largest size that the database file may reach, in bytes. No bound but the disk's when left out. */
	readonly maxBytes?: number;
}

/**
 * Opens the store in a SQLite database file, creating file and folder when they are missing and bringing an older
 * database up to date. One thread writes, one reads, and one copies the write-ahead log.
 *
 * @throws ServiceError `unavailable` when the database cannot be opened or is of a newer release; the cause says why.
 */
export async function openSqliteStore(path: string, log: LinkLog, options: SqliteOptions = {}): Promise<Store> {
	const settings = { path, lockTimeout: options.lockTimeout ?? 2_000, maxBytes: options.maxBytes };
	try {
		await mkdir(dirname(path), { recursive: true, mode: 0o700 });
	} catch (error) {
		throw unavailable({ message: failureOf(error).message, code: 14 });
	}
	const store = new SqliteStore(settings, log);
	await store.open();
	return store;
}

class SqliteStore implements Store {
	readonly #writer: Link<WriteRequest>;
	readonly #reader: Link<ReadRequest>;
	readonly #copier: Link<CopyRequest>;
	readonly #pruner: Pruner;
	readonly #checkpoints: Checkpoints;
	readonly #catchUp: CatchUp;
	readonly #log: LinkLog;
	readonly #listeners = new Set<(newest: bigint) => void>();
	/** Lists that have not been answered. */
	readonly #lists = new Set<Promise<unknown>>();
	#newest = 0n;
	#announced = false;

	constructor(options: DatabaseOptions, log: LinkLog) {
		const link = <Request extends { readonly kind: string }>(
			name: string,
			more: Pick<LinkOptions, "youngGeneration"> = {},
		): Link<Request> => {
			// `.ts` in src, `.js` in dist.
			const script = new URL(name + extname(import.meta.url), import.meta.url);
			return new Link({ whole: "the store", name, script, data: options, toError: unavailable, log, ...more });
		};
		// It makes few objects, and keeps none.
		this.#writer = link("writer", { youngGeneration: 12 });
		this.#reader = link("reader");
		this.#copier = link("checkpointer");
		this.#log = log;
		this.#pruner = new Pruner(this.#writer, this.#reader);
		this.#checkpoints = new Checkpoints(this.#copier, this.#writer);
		this.#catchUp = new CatchUp(this.#writer);
	}

	async open(): Promise<void> {
		// The writer creates the file and brings it up to date, so the others come second.
		await this.#writer.start();
		try {
			await Promise.all([this.#reader.start(), this.#copier.start()]);
		} catch (error) {
			await this.close();
			throw error;
		}
		this.#catchUp.schedule();
	}

	append(update: EncodedUpdate): Promise<Appended> {
		const read = (appended: Appended) => {
			if (!appended.repeated) this.#announce(appended.sequence);
			return appended;
		};
		return this.#writer.send({ kind: "append" }, read, update);
	}

	get(conversationId: string, asOf?: bigint): Promise<StoredUpdate | undefined> {
		return this.#reader.send({ kind: "get", conversationId, asOf }, (answer: UpdateAnswer | undefined, parts) =>
			answer === undefined ? undefined : { ...answer, record: parts[0] },
		);
	}

	async listConversations(query: ConversationQuery): Promise<StoredConversation[]> {
		const list = this.#list(query);
		this.#lists.add(list);
		try {
			return await list;
		} finally {
			this.#lists.delete(list);
		}
	}

	async #list(query: ConversationQuery): Promise<StoredConversation[]> {
		await this.#catchUp.done();
		return await this.#reader.send({ kind: "listConversations", query }, (answers: ConversationAnswer[], parts) => {
			const step = query.withRecords ? 2 : 1;
			return answers.map((answer, index) => ({
				...answer,
				summary: parts[index * step] ?? new Uint8Array(),
				record: query.withRecords ? parts[index * step + 1] : undefined,
			}));
		});
	}

	listUpdates(query: UpdateQuery): Promise<StoredUpdate[]> {
		return this.#reader.send({ kind: "listUpdates", query }, (answers: UpdateAnswer[], parts) =>
			answers.map((answer, index) => ({ ...answer, record: parts[index] })),
		);
	}

	range(): Promise<SequenceRange> {
		return this.#reader.send({ kind: "range" }, (range: SequenceRange) => range);
	}

	subscribe(listener: (newest: bigint) => void): () => void {
		// Wrapped, so that each subscription ends by itself even if a listener is given twice.
		const own = (newest: bigint) => listener(newest);
		this.#listeners.add(own);
		return () => this.#listeners.delete(own);
	}

	async prune(policy: PrunePolicy): Promise<number> {
		// A full database may have no room for it, and pruning makes some; what is still listed stays then.
		await this.#catchUp.done().catch(() => undefined);
		const removed = await this.#pruner.step(policy);
		this.#checkpoints.committed();
		return removed;
	}

	async check(): Promise<void> {
		await Promise.all([
			this.#writer.send({ kind: "check" }, () => undefined),
			this.#reader.send({ kind: "check" }, () => undefined),
		]);
		this.#checkpoints.committed();
	}

	async close(): Promise<void> {
		// A list may yet need the writer, and then the reader.
		await Promise.allSettled(this.#lists);
		this.#writer.refuse();
		this.#checkpoints.stop();
		this.#catchUp.stop();
		// Only alone can the writer empty the write-ahead log.
		await Promise.all([this.#reader.close({ kind: "close" }), this.#copier.close({ kind: "close" })]);
		await this.#writer.close({ kind: "close" });
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.close();
	}

	// The answers of one commit arrive together; the listeners hear of them once.
	#announce(sequence: bigint): void {
		if (sequence > this.#newest) this.#newest = sequence;
		if (this.#announced) return;
		this.#announced = true;
		queueMicrotask(() => {
			this.#announced = false;
			this.#checkpoints.committed();
			this.#catchUp.committed();
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
