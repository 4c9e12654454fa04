import { closeSync, existsSync, openSync, realpathSync, statSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import type { ThreadLog } from "../../threads/worker-thread.ts";
import {
	type Contents,
	type CopyTarget,
	describeContents,
	requireContents,
	type TransferDatabase,
} from "../transfer.ts";
import { text } from "../values.ts";
import { putInPlace } from "./backup.ts";
import { openForReading, openForWriting, prepareFiles, transaction, unfinishedFile } from "./database.ts";
import { listEvents } from "./events.ts";
import { listConversations } from "./list-conversations.ts";
import { lockDatabase } from "./lock.ts";
import { readRange, readRetentionTime } from "./log.ts";
import { createSchema, schemaVersion } from "./schema.ts";
import { openSqliteStore } from "./sqlite.ts";
import { Statements } from "./statements.ts";
import { countRows, insertRows, lastKey, transferRows } from "./transfer-rows.ts";
import { listUpdates } from "./updates.ts";

/**
 * Opens a database as the source of a copy. While it is open, its lock keeps services from opening it. The database is
 * first opened and closed as a store, which upgrades its tables and recovers from a crash.
 *
 * @param log receives the errors of that store
 * @throws Error when there is no such database
 * @throws ServiceError `unavailable` when it cannot be opened, or a service has it open
 */
export async function openSqliteSource(path: string, log: ThreadLog): Promise<TransferDatabase> {
	if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) === 0) throw new Error(`there is no database ${path}`);
	await (await openSqliteStore(path, log)).close();
	const lock = lockDatabase(realpathSync(path));
	try {
		return transferOf(openForReading({ path }), lock);
	} catch (error) {
		lock[Symbol.dispose]();
		throw error;
	}
}

/**
 * Opens a database as the target of a copy. Until the copy is complete, it is in a separate file beside the path.
 *
 * @throws Error when there is a database at the path
 * @throws ServiceError `unavailable` when the files cannot be created, or a service has the database open
 */
export async function openSqliteTarget(database: string): Promise<CopyTarget> {
	const path = prepareFiles(database);
	const lock = lockDatabase(path);
	try {
		if (statSync(path).size > 0) throw new Error(`${path} already exists`);
		const copy = unfinishedFile(path);
		if (!existsSync(copy)) closeSync(openSync(copy, "wx", 0o600));
		return targetOf(openForWriting({ path: copy }), lock, copy, path);
	} catch (error) {
		lock[Symbol.dispose]();
		throw error;
	}
}

function transferOf(database: DatabaseSync, lock: Disposable): TransferDatabase {
	const statements = new Statements(database);
	return {
		contents: async () => contentsOf(statements),
		rows: async (table, after) => transferRows(statements, table, after),
		reads: {
			updates: { list: async (query) => listUpdates(statements, query) },
			events: { list: async (query) => listEvents(statements, query) },
			listConversations: async (query) => listConversations(statements, query),
		},
		async [Symbol.asyncDispose]() {
			if (database.isOpen) database.close();
			lock[Symbol.dispose]();
		},
	};
}

/**
 * @param copy path of the file that the open database is in
 * @param path to which the file is renamed when the copy is complete
 */
function targetOf(database: DatabaseSync, lock: Disposable, copy: string, path: string): CopyTarget {
	const statements = new Statements(database);
	return {
		...transferOf(database, lock),
		async begin(source) {
			const described = describeContents(source);
			transaction(database, "BEGIN IMMEDIATE", () => {
				if (schemaVersion(database) === 0) {
					createSchema(database);
					database.exec("CREATE TABLE unfinished_copy (source TEXT NOT NULL) STRICT");
					database.prepare("INSERT INTO unfinished_copy VALUES (?)").run(described);
				}
				if (sourceOf(statements) !== described)
					throw new Error(
						`${copy} is part of a copy of another source, or the source has changed since: remove the file to start again`,
					);
			});
		},
		last: async (table) => lastKey(statements, table),
		async write(table, rows) {
			transaction(database, "BEGIN IMMEDIATE", () => insertRows(statements, table, rows));
		},
		async finish(source) {
			transaction(database, "BEGIN IMMEDIATE", () => {
				for (const log of ["updates", "events"] as const) {
					const { newest, prunedThrough, lastRemoval } = source[log];
					statements
						.prepare("UPDATE logs SET pruned_through = ?, last_removal = ?, skipped_through = ? WHERE log = ?")
						.run(prunedThrough, lastRemoval, newest, log);
				}
				statements.prepare("UPDATE store_state SET clock = ?").run(source.retentionTime ?? null);
				database.exec("DROP TABLE IF EXISTS unfinished_copy");
				requireContents(contentsOf(statements), source);
			});
			database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
			database.close();
			putInPlace(copy, path);
		},
	};
}

function contentsOf(statements: Statements): Contents {
	return {
		counts: countRows(statements),
		updates: readRange(statements, "updates", {}),
		events: readRange(statements, "events", {}),
		retentionTime: readRetentionTime(statements),
	};
}

/** Returns the contents of the source of a copy, as {@link describeContents} writes them. */
function sourceOf(copy: Statements): string {
	const isUnfinished = copy.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'unfinished_copy'").get();
	// The copy was interrupted after its last transaction, before the file was renamed.
	if (isUnfinished === undefined) return describeContents(contentsOf(copy));
	return text(copy.prepare("SELECT source FROM unfinished_copy").get()?.source);
}
