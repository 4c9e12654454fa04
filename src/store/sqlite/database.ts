import { DatabaseSync } from "node:sqlite";
import { integer } from "./values.ts";

/** How to open a database. */
export interface DatabaseOptions {
	readonly path: string;
	/** How long a statement waits for another process's lock, in milliseconds. */
	readonly lockTimeout: number;
	/** Largest size that the database file may reach, in bytes; undefined for no bound but the disk's. */
	readonly maxBytes: number | undefined;
}

/** For a statement that only reads, and nothing beyond 2^53. */
export const asNumbers = { readBigInts: false };
const shared = { enableForeignKeyConstraints: false };

/**
 * Opens the database for writing, creating the file when it is missing. Its statements read integers as bigints unless
 * they say otherwise: `run` also reads the last row id, which the title index sets to values beyond 2^53.
 */
export function openForWriting({ path, lockTimeout, maxBytes }: DatabaseOptions): DatabaseSync {
	const database = new DatabaseSync(path, { ...shared, timeout: lockTimeout, readBigInts: true });
	// A commit must be on disk when it returns, hence FULL. The log is copied by another thread (see checkpoints.ts), so
	// that no commit waits for it. A usual record takes a third of a page, and more than half of one of 4 KiB, SQLite's
	// default; a database that exists keeps its page size.
	database.exec(`
		PRAGMA page_size = 8192;
		PRAGMA journal_mode = WAL;
		PRAGMA synchronous = FULL;
		PRAGMA wal_autocheckpoint = 0;
		PRAGMA journal_size_limit = 268435456;
		PRAGMA cache_size = -8192;
	`);
	bound(database, maxBytes);
	return database;
}

function bound(database: DatabaseSync, maxBytes: number | undefined): void {
	if (maxBytes === undefined) return;
	database.exec(`PRAGMA max_page_count = ${Math.max(1, Math.floor(maxBytes / pageSizeOf(database)))}`);
}

function pageSizeOf(database: DatabaseSync): number {
	return integer(database.prepare("PRAGMA page_size", asNumbers).get()?.page_size);
}

/** Opens an existing database for reading. Reads go on while another connection writes. */
export function openForReading({ path, lockTimeout }: DatabaseOptions): DatabaseSync {
	const database = new DatabaseSync(path, { ...shared, timeout: lockTimeout, readOnly: true });
	database.exec("PRAGMA cache_size = -32768");
	return database;
}

/** Opens an existing database for copying its write-ahead log into it. */
export function openForCopying({ path, lockTimeout, maxBytes }: DatabaseOptions): DatabaseSync {
	const database = new DatabaseSync(path, { ...shared, timeout: lockTimeout });
	bound(database, maxBytes);
	return database;
}

/** The write-ahead log of a database. */
export interface WriteAheadLog {
	/** How many of its bytes have not been copied into the database. */
	pendingBytes(): number;
	/** Copies what no read that is under way still needs elsewhere. Neither commits nor reads wait for it. */
	copy(): void;
}

export function writeAheadLog(database: DatabaseSync): WriteAheadLog {
	const pageSize = pageSizeOf(database);
	const measure = database.prepare("PRAGMA wal_checkpoint(NOOP)", asNumbers);
	const passive = database.prepare("PRAGMA wal_checkpoint(PASSIVE)");
	return {
		pendingBytes() {
			const { log, checkpointed } = measure.get() ?? {};
			return (integer(log) - integer(checkpointed)) * pageSize;
		},
		copy() {
			passive.get();
		},
	};
}

/** Runs `work` in one transaction, which is rolled back when it throws. */
export function transaction<T>(database: DatabaseSync, begin: "BEGIN" | "BEGIN IMMEDIATE", work: () => T): T {
	database.exec(begin);
	try {
		const result = work();
		database.exec("COMMIT");
		return result;
	} catch (error) {
		// Some failures, such as a full disk, end the transaction by themselves.
		if (database.isTransaction) database.exec("ROLLBACK");
		throw error;
	}
}
