import { closeSync, existsSync, openSync, realpathSync, statSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import type { ThreadLog } from "../../threads/worker-thread.ts";
import {
	type Contents,
	type CopyTarget,
	describeContents,
	type RowKey,
	requireContents,
	type TransferDatabase,
	type TransferRows,
	type TransferTable,
} from "../transfer.ts";
import { text } from "../values.ts";
import { putInPlace } from "./backup.ts";
import { openForReading, openForWriting, prepareFiles, transaction } from "./database.ts";
import { listEvents } from "./events.ts";
import { listConversations } from "./list-conversations.ts";
import { lockDatabase } from "./lock.ts";
import { readClock, readRange } from "./log.ts";
import { createSchema, schemaVersion } from "./schema.ts";
import { openSqliteStore } from "./sqlite.ts";
import { Statements } from "./statements.ts";
import { countRows, insertRows, lastKey, transferRows } from "./transfer-rows.ts";
import { listUpdates } from "./updates.ts";

/**
 * Opens a database to be copied. Its lock keeps services away as long as it is open. A store opens and closes it before,
 * which upgrades its tables and makes up for what a crash has left.
 *
 * @param log told of what the store is told of
 * @throws Error when there is no such database
 * @throws ServiceError `unavailable` when it cannot be opened, or a service has it open
 */
export async function openSqliteSource(path: string, log: ThreadLog): Promise<TransferDatabase> {
	if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) === 0) throw new Error(`there is no database ${path}`);
	const onWalLoss = ({ skipped }: { readonly skipped: bigint }) =>
		log.error({ skipped }, "the end of the write-ahead log is damaged, and what it held is lost");
	await (await openSqliteStore(path, log, { onWalLoss })).close();
	const lock = lockDatabase(realpathSync(path));
	try {
		return new SqliteTransfer(openForReading({ path }), lock);
	} catch (error) {
		lock[Symbol.dispose]();
		throw error;
	}
}

/**
 * Opens a database that a copy is to be made in. Until it is complete, the copy is in a file of its own beside the path.
 *
 * @throws Error when there is a database at the path
 * @throws ServiceError `unavailable` when the files cannot be made, or a service has the database open
 */
export async function openSqliteTarget(database: string): Promise<CopyTarget> {
	const path = prepareFiles(database);
	const lock = lockDatabase(path);
	try {
		if (statSync(path).size > 0) throw new Error(`${path} is there already`);
		const copy = `${path}.copying`;
		if (!existsSync(copy)) closeSync(openSync(copy, "wx", 0o600));
		return new SqliteTarget(openForWriting({ path: copy }), lock, {
			copy,
			path,
		});
	} catch (error) {
		lock[Symbol.dispose]();
		throw error;
	}
}

class SqliteTransfer implements TransferDatabase {
	readonly reads: TransferDatabase["reads"] = {
		updates: { list: async (query) => listUpdates(this.statements, query) },
		events: { list: async (query) => listEvents(this.statements, query) },
		listConversations: async (query) => listConversations(this.statements, query),
	};
	protected readonly database: DatabaseSync;
	protected readonly statements: Statements;
	readonly #lock: Disposable;

	constructor(database: DatabaseSync, lock: Disposable) {
		this.database = database;
		this.statements = new Statements(database);
		this.#lock = lock;
	}

	async contents(): Promise<Contents> {
		return this.contentsNow();
	}

	async rows<Table extends TransferTable>(
		table: Table,
		after: RowKey | undefined,
	): Promise<readonly TransferRows[Table][]> {
		return transferRows(this.statements, table, after);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		if (this.database.isOpen) this.database.close();
		this.#lock[Symbol.dispose]();
	}

	protected contentsNow(): Contents {
		return {
			counts: countRows(this.statements),
			updates: readRange(this.statements, "updates", {}),
			events: readRange(this.statements, "events", {}),
			clock: readClock(this.statements),
		};
	}
}

class SqliteTarget extends SqliteTransfer implements CopyTarget {
	readonly #files: { readonly copy: string; readonly path: string };

	/** @param files the one that the copy is made in, and the one that it becomes */
	constructor(database: DatabaseSync, lock: Disposable, files: { readonly copy: string; readonly path: string }) {
		super(database, lock);
		this.#files = files;
	}

	async begin(source: Contents): Promise<void> {
		const described = describeContents(source);
		transaction(this.database, "BEGIN IMMEDIATE", () => {
			if (schemaVersion(this.database) === 0) {
				createSchema(this.database);
				this.database.exec("CREATE TABLE unfinished_copy (source TEXT NOT NULL) STRICT");
				this.database.prepare("INSERT INTO unfinished_copy VALUES (?)").run(described);
			}
			if (this.#sourceOfCopy() !== described)
				throw new Error(
					`${this.#files.copy} is part of a copy of something else, or the source has changed since: remove it to begin anew`,
				);
		});
	}

	/** What the source of the copy held. */
	#sourceOfCopy(): string {
		const isUnfinished = this.database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'unfinished_copy'").get();
		// A copy that was broken off between its last transaction and its renaming.
		if (isUnfinished === undefined) return describeContents(this.contentsNow());
		return text(this.database.prepare("SELECT source FROM unfinished_copy").get()?.source);
	}

	async last(table: TransferTable): Promise<RowKey | undefined> {
		return lastKey(this.statements, table);
	}

	async write<Table extends TransferTable>(table: Table, rows: readonly TransferRows[Table][]): Promise<void> {
		transaction(this.database, "BEGIN IMMEDIATE", () => insertRows(this.statements, table, rows));
	}

	async finish(source: Contents): Promise<void> {
		transaction(this.database, "BEGIN IMMEDIATE", () => {
			for (const log of ["updates", "events"] as const) {
				const { newest, prunedThrough, lastRemoval } = source[log];
				this.statements
					.prepare("UPDATE logs SET pruned_through = ?, last_removal = ?, skipped_through = ? WHERE log = ?")
					.run(prunedThrough, lastRemoval, newest, log);
			}
			this.statements.prepare("UPDATE store_state SET clock = ?").run(source.clock ?? null);
			this.database.exec("DROP TABLE IF EXISTS unfinished_copy");
			requireContents(this.contentsNow(), source);
		});
		this.database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
		this.database.close();
		putInPlace(this.#files.copy, this.#files.path);
	}
}
