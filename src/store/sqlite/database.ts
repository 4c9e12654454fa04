import {
	accessSync,
	chmodSync,
	closeSync,
	constants,
	existsSync,
	mkdirSync,
	openSync,
	realpathSync,
	statSync,
} from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { integer } from "../values.ts";
import { LOCK_TIMEOUT, lockFile } from "./lock.ts";
import { schemaVersion } from "./schema.ts";
import type { WalEnd } from "./wal-end.ts";

/** How to open a database. */
export interface DatabaseOptions {
	readonly path: string;
	/** How long a statement waits for another process's lock, in milliseconds. {@link LOCK_TIMEOUT} when left out. */
	readonly lockTimeout?: number | undefined;
	/** Largest size that the database file may reach, in bytes. No bound but the disk's when left out. */
	readonly maxBytes?: number | undefined;
}

/** How the writing thread opens a database. */
export interface WriterOptions extends DatabaseOptions {
	/**
	 * What of the write-ahead log was lost before the store was opened. A thread that is started again leaves its sequences
	 * out once more, which does no harm.
	 */
	readonly walEnd: WalEnd | undefined;
}

// All statements read integers as bigints: some times are beyond 2^53.
const SHARED = { enableForeignKeyConstraints: false, readBigInts: true };

/**
 * Opens the database for writing; its file is there already.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program. Then the database and its
 *   journals are unchanged
 */
export function openForWriting({ path, lockTimeout = LOCK_TIMEOUT, maxBytes }: DatabaseOptions): DatabaseSync {
	requireOwn(path, lockTimeout);
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
 * A connection that may write would roll back another program's journal, or move its write-ahead log into its file. What
 * is in a log is part of the database, and a connection that only reads sees it; of files it makes or changes the log's
 * index (`-shm`), which SQLite makes anew when it is missing. Without a log an immutable database is read, beside which
 * SQLite makes no files.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program
 */
function requireOwn(path: string, lockTimeout: number): void {
	const file = existsSync(`${realpathSync(path)}-wal`) ? path : immutable(path);
	using database = new DatabaseSync(file, { ...SHARED, timeout: lockTimeout, readOnly: true });
	schemaVersion(database);
}

/** Address of a database that nobody writes: SQLite makes no files beside it. */
export function immutable(path: string): URL {
	return new URL(`${pathToFileURL(path).href}?immutable=1`);
}

/**
 * Creates the folder, the file and the lock file of a database when they are missing. Files that are there stay as they
 * are: they may be another program's.
 *
 * @returns the path without symbolic links. SQLite has its other files beside the file that a link leads to
 * @throws Error of node:fs, or when one of them is a folder, a device or a pipe
 */
export function prepareFiles(path: string): string {
	makeFolder(dirname(path));
	if (!isThere(path)) createFile(path);
	const real = realpathSync(path);
	if (!isThere(lockFile(real))) createFile(lockFile(real));
	for (const file of [`${real}-wal`, `${real}-shm`]) isThere(file);
	return real;
}

/**
 * Lets only their owner read the files of a database that is the service's own.
 *
 * @param path without symbolic links
 */
export function protectFiles(path: string): void {
	for (const file of [path, lockFile(path), `${path}-wal`, `${path}-shm`]) if (isThere(file)) chmodSync(file, 0o600);
}

/** @throws Error when something else than a file is there, or a file that may not be read and written */
function isThere(file: string): boolean {
	const found = statSync(file, { throwIfNoEntry: false });
	if (found === undefined) return false;
	if (!found.isFile()) throw new Error(`${file} is not a regular file`);
	// SQLite would not say why.
	accessSync(file, constants.R_OK | constants.W_OK);
	return true;
}

function createFile(file: string): void {
	closeSync(openSync(file, "a", 0o600));
}

/** Creates a folder and those above it, as far as they are missing. */
function makeFolder(folder: string): void {
	if (existsSync(folder)) return;
	// Node.js' own recursive form does not end where nothing can be created, such as in /proc.
	makeFolder(dirname(folder));
	try {
		mkdirSync(folder, { mode: 0o700 });
	} catch (error) {
		// Another start can have made it meanwhile.
		if (!existsSync(folder)) throw error;
	}
}

/** Opens an existing database for reading. Reads go on while another connection writes. */
export function openForReading({ path, lockTimeout = LOCK_TIMEOUT }: DatabaseOptions): DatabaseSync {
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
