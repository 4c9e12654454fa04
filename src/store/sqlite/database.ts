import { chmodSync, closeSync, mkdirSync, openSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { integer } from "../values.ts";
import { lockFile } from "./lock.ts";

/** How to open a database. */
export interface DatabaseOptions {
	readonly path: string;
	/** How long a statement waits for another process's lock, in milliseconds. */
	readonly lockTimeout: number;
	/** Largest size that the database file may reach, in bytes; undefined for no bound but the disk's. */
	readonly maxBytes: number | undefined;
}

// All statements read integers as bigints: some times are beyond 2^53.
const SHARED = { enableForeignKeyConstraints: false, readBigInts: true };

/** Opens the database for writing; its file is there already. */
export function openForWriting({ path, lockTimeout, maxBytes }: DatabaseOptions): DatabaseSync {
	const database = new DatabaseSync(path, { ...SHARED, timeout: lockTimeout });
	// FULL: a commit is on disk when it returns. A usual record takes more than half of a page of 4 KiB, SQLite's default,
	// and a third of one of 8 KiB.
	database.exec(`
		PRAGMA page_size = 8192;
		PRAGMA journal_mode = WAL;
		PRAGMA synchronous = FULL;
		PRAGMA cache_size = -8192;
	`);
	if (maxBytes !== undefined) {
		const pageSize = integer(database.prepare("PRAGMA page_size").get()?.page_size);
		database.exec(`PRAGMA max_page_count = ${Math.max(1, Math.floor(maxBytes / pageSize))}`);
	}
	return database;
}

/**
 * Creates the folder, the file and the lock file of a database when they are missing, and lets only their owner read the
 * files.
 *
 * @throws Error of node:fs
 */
export function prepareFiles(path: string): void {
	mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
	const own = [path, lockFile(path)];
	// SQLite gives its other files the mode of the database file when it creates them.
	for (const file of [...own, `${path}-wal`, `${path}-shm`]) {
		const found = statSync(file, { throwIfNoEntry: false });
		if (found?.isFile() === true) chmodSync(file, 0o600);
		else if (found === undefined && own.includes(file)) closeSync(openSync(file, "a", 0o600));
	}
}

/** Opens an existing database for reading. Reads go on while another connection writes. */
export function openForReading({ path, lockTimeout }: DatabaseOptions): DatabaseSync {
	const database = new DatabaseSync(path, { ...SHARED, timeout: lockTimeout, readOnly: true });
	database.exec("PRAGMA cache_size = -32768");
	return database;
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
