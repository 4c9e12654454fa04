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
import { ServiceError } from "../../errors.ts";
import { type Failure, failureOf } from "../../threads/protocol.ts";
import type { ReturnedSpace } from "../compaction.ts";
import { bigint, integer } from "../values.ts";
import { schemaVersion } from "./schema.ts";

/** Options of a connection to a database. */
export interface DatabaseOptions {
	readonly path: string;
	/** Milliseconds that a statement waits for another process's lock. Default: {@link LOCK_TIMEOUT}. */
	readonly lockTimeout?: number | undefined;
	/** Maximum size of the database file in bytes. When left out, only the disk limits it. */
	readonly maxBytes?: number | undefined;
}

// Statements return integers as bigints, because some times exceed 2^53.
const CONNECTION_OPTIONS = { enableForeignKeyConstraints: false, readBigInts: true };

/**
 * Opens an existing database file for writing.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program. Then the database and
 *   its journals are unchanged
 */
export function openForWriting({ path, lockTimeout = LOCK_TIMEOUT, maxBytes }: DatabaseOptions): DatabaseSync {
	requireOwnDatabase(path, lockTimeout);
	const database = new DatabaseSync(path, { ...CONNECTION_OPTIONS, timeout: lockTimeout });
	// With secure_delete, what is removed is overwritten with zeros, so that no page of the file keeps it.
	// With synchronous = FULL a commit is on disk when it returns. A typical record takes more than half of a 4 KiB page,
	// SQLite's default page size, but only a third of an 8 KiB page. With auto_vacuum, which like the page size is set when
	// the database is created, free pages can be returned to the file system. An append waits for a
	// checkpoint, so one comes every two MiB and is short.
	database.exec(`
		PRAGMA page_size = 8192;
		PRAGMA auto_vacuum = INCREMENTAL;
		PRAGMA journal_mode = WAL;
		PRAGMA synchronous = FULL;
		PRAGMA secure_delete = ON;
		PRAGMA cache_size = -8192;
		PRAGMA wal_autocheckpoint = 250;
	`);
	if (maxBytes !== undefined) {
		const pageSize = integer(database.prepare("PRAGMA page_size").get()?.page_size);
		database.exec(`PRAGMA max_page_count = ${Math.max(1, Math.floor(maxBytes / pageSize))}`);
	}
	return database;
}

/**
 * Checks over a read-only connection that the database is the service's own. A read-write connection would roll back
 * another program's rollback journal, or checkpoint its write-ahead log. A write-ahead log is part of the database, and
 * the read-only connection reads it. SQLite then creates or changes only the log's index (`-shm`), which it recreates
 * when it is missing. Without a log the database is opened as immutable, so that SQLite creates no files beside it.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program
 */
function requireOwnDatabase(path: string, lockTimeout: number): void {
	const file = existsSync(`${realpathSync(path)}-wal`) ? path : immutable(path);
	using database = new DatabaseSync(file, { ...CONNECTION_OPTIONS, timeout: lockTimeout, readOnly: true });
	schemaVersion(database);
}

/** Returns the URI of a database that no process writes to. SQLite creates no files beside it. */
export function immutable(path: string): URL {
	return new URL(`${pathToFileURL(path).href}?immutable=1`);
}

/**
 * Creates the folder, the file and the lock file of a database if they do not exist. Existing files are not changed,
 * because they may belong to another program.
 *
 * @returns the path without symbolic links. SQLite puts its other files beside the file that a link points to
 * @throws Error of node:fs, or when one of the files is a folder, a device or a pipe
 */
export function prepareFiles(path: string): string {
	createFolder(dirname(path));
	if (!fileExists(path)) createFile(path);
	const realPath = realpathSync(path);
	if (!fileExists(lockFile(realPath))) createFile(lockFile(realPath));
	// SQLite creates these. If they exist, they must be usable.
	for (const file of [`${realPath}-wal`, `${realPath}-shm`]) fileExists(file);
	return realPath;
}

/**
 * Checks that a database file that may exist is the one that services have used, and the only name of it.
 *
 * @throws Error when the file was emptied after a service had used it, or when it has several hard links: a second service
 *   could open it by another name, with a lock and a write-ahead log of its own
 */
export function requireIntact(path: string): void {
	const found = statSync(path, { throwIfNoEntry: false });
	if (!found?.isFile()) return;
	if (found.nlink > 1) throw new Error(`${path} has ${found.nlink} hard links; remove all but one`);
	const realPath = realpathSync(path);
	// An interrupted import has its data in another file: see `requireFinished`.
	if (found.size === 0 && existsSync(lockFile(realPath)) && !existsSync(unfinishedFile(realPath)))
		throw new Error(
			`${path} is empty, but it held a database: restore a backup, or remove the file to begin without data`,
		);
}

/** Returns the path of the file that an import into the database at `path` writes until it is finished. */
export function unfinishedFile(path: string): string {
	return `${path}.importing`;
}

/**
 * Checks that no import into an empty database was interrupted, because a service would start without the imported data.
 *
 * @param path of the locked database, without symbolic links
 * @throws Error when the import is not finished
 */
export function requireFinished(path: string): void {
	if (statSync(path).size > 0 || !existsSync(unfinishedFile(path))) return;
	throw new Error(`an import into the database is not finished: run it again, or remove ${unfinishedFile(path)}`);
}

/**
 * Sets the permissions of the service's own database files so that only their owner can read and write them.
 *
 * @param path of the database, without symbolic links
 */
export function protectFiles(path: string): void {
	for (const file of [path, lockFile(path), `${path}-wal`, `${path}-shm`]) if (fileExists(file)) chmodSync(file, 0o600);
}

/**
 * Returns whether a file exists.
 *
 * @throws Error when the path is not a regular file, or when the process may not read and write it
 */
function fileExists(file: string): boolean {
	const found = statSync(file, { throwIfNoEntry: false });
	if (found === undefined) return false;
	if (!found.isFile()) throw new Error(`${file} is not a regular file`);
	// SQLite's own error would not give the reason.
	accessSync(file, constants.R_OK | constants.W_OK);
	return true;
}

function createFile(file: string): void {
	closeSync(openSync(file, "a", 0o600));
}

/** Creates a folder and its parents if they do not exist. */
function createFolder(folder: string): void {
	if (existsSync(folder)) return;
	// With `recursive`, mkdirSync does not return where nothing can be created, such as in /proc.
	createFolder(dirname(folder));
	try {
		mkdirSync(folder, { mode: 0o700 });
	} catch (error) {
		// Another process may have created it meanwhile.
		if (!existsSync(folder)) throw error;
	}
}

/** Opens an existing database for reading. A write of another connection does not block it. */
export function openForReading({ path, lockTimeout = LOCK_TIMEOUT }: DatabaseOptions): DatabaseSync {
	const database = new DatabaseSync(path, { ...CONNECTION_OPTIONS, timeout: lockTimeout, readOnly: true });
	database.exec("PRAGMA cache_size = -32768");
	return database;
}

/** Runs work in one transaction. Rolls it back when the work throws. */
export async function transaction<T>(
	database: DatabaseSync,
	begin: "BEGIN" | "BEGIN IMMEDIATE",
	work: () => Promise<T>,
): Promise<T> {
	database.exec(begin);
	try {
		const result = await work();
		database.exec("COMMIT");
		return result;
	} catch (error) {
		// SQLite itself rolls back after some errors, such as a full disk.
		if (database.isTransaction) database.exec("ROLLBACK");
		throw error;
	}
}

/** Maximum number of free pages that a transaction returns. */
const PAGES = 1_000;
/** Value of `auto_vacuum` for databases whose free pages can be returned. */
const INCREMENTAL = 2n;

/** Returns free pages to the file system, at the next checkpoint. The caller has begun a transaction. */
export function returnSpace(database: DatabaseSync): ReturnedSpace {
	const value = (name: string) => bigint(database.prepare(`PRAGMA ${name}`).get()?.[name]);
	const [size, before] = [value("page_size"), value("freelist_count")];
	const canReturn = value("auto_vacuum") === INCREMENTAL;
	if (canReturn) database.exec(`PRAGMA incremental_vacuum(${PAGES})`);
	const after = value("freelist_count");
	return { returnedBytes: (before - after) * size, freeBytes: after * size, hasMore: canReturn && after > 0n };
}

/** Default time to wait for another process's lock, in milliseconds. */
export const LOCK_TIMEOUT = 2_000;

/** Returns the path of the empty file that a process locks while it has the database at `path` open for writing. */
export function lockFile(path: string): string {
	return `${path}.lock`;
}

/**
 * Locks a database for this process, until the lock is disposed of or the process ends, also by a crash. The lock is on
 * the file of {@link lockFile}, which must exist, so that other programs can still read the database.
 *
 * @param timeout milliseconds to wait while another process has the lock
 * @throws ServiceError `unavailable` when another process keeps the lock
 */
export function lockDatabase(path: string, timeout: number = LOCK_TIMEOUT): Disposable {
	// Node.js has no file locks. Those of SQLite end with the process and are free of races.
	const lock = new DatabaseSync(lockFile(path), { timeout });
	try {
		// A journal on disk would create another file.
		lock.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
	} catch (error) {
		lock.close();
		const failure = failureOf(error);
		if (failure.code !== 5) throw unavailable(failure);
		const cause = new Error(`another process has the database ${path} open`);
		throw new ServiceError("unavailable", "the store is locked by another process", { cause });
	}
	return lock;
}

/** A file of the database is no longer at its path, so the next start may not find what is written. */
class MovedError extends Error {
	readonly errcode = SQLITE_READONLY_DBMOVED;
}

/**
 * Returns a check whether the files of a database that is open in WAL mode are at their paths; it makes a system call for each,
 * and throws {@link MovedError}. An open file can still be written after its name was removed, so a successful commit does
 * not prove that the next start will find the data. Call this after the first transaction, which creates all files.
 */
export function openFiles(path: string): () => void {
	// The path may be a symbolic link. The other files are beside the file that it points to.
	const realPath = realpathSync(path);
	const opened = new Map([path, realPath, `${realPath}-wal`, `${realPath}-shm`].map((file) => [file, fileAt(file)]));
	return () => {
		for (const [file, before] of opened) {
			const found = fileAt(file);
			if (found === undefined) throw new MovedError(`${file} was deleted or moved while the database was open`);
			if (found !== before) throw new MovedError(`${file} was replaced by another file while it was open`);
		}
	};
}

/**
 * Returns what identifies the file at a path; undefined when there is none.
 *
 * @throws MovedError when the path cannot be reached, for example because a folder of it may not be searched
 */
function fileAt(path: string): string | undefined {
	try {
		// Inode numbers can exceed 2^53.
		const found = statSync(path, { bigint: true, throwIfNoEntry: false });
		return found && `${found.dev} ${found.ino}`;
	} catch (error) {
		const reason = error instanceof Error ? error.message : String(error);
		throw new MovedError(`${path} cannot be reached while the database is open: ${reason}`);
	}
}

/** Extended result code of SQLite for a database file that was moved after it was opened. */
const SQLITE_READONLY_DBMOVED = 1032;

/** SQLite result codes that concern the whole database, with the message that a client gets. */
const DATABASE_FAILURES: ReadonlyMap<number, string> = new Map([
	[3, "the service has no permission to access the store's database"],
	[5, "the store is locked by another process"],
	[6, "the store is locked by another process"],
	[7, "the store has no memory left"],
	[8, "the store is read-only"],
	[10, "the store's disk failed to read or write"],
	[11, "the store's database is damaged"],
	[13, "the store is full"],
	[14, "the store's database cannot be opened"],
	[26, "the store's database is damaged or is not a database"],
	[SQLITE_READONLY_DBMOVED, "the store's database was moved, deleted or replaced"],
]);

/** Returns whether a failure concerns the whole database, so that other statements fail as well. */
export function isDatabaseFailure(failure: Failure): boolean {
	return clientMessageOf(failure) !== undefined;
}

/** Returns the message for an extended result code, or else for the primary code, which is its lowest byte. */
function clientMessageOf({ code }: Failure): string | undefined {
	return code === undefined ? undefined : (DATABASE_FAILURES.get(code) ?? DATABASE_FAILURES.get(code & 0xff));
}

/**
 * Returns the error for a caller of the store: `unavailable` when the failure concerns the whole database, otherwise
 * `internal`. Only its cause has SQLite's own message.
 */
export function storeError(failure: Failure): ServiceError {
	const { code, message } = failure;
	const cause = new Error(code === undefined ? message : `${message} (SQLite result code ${code})`);
	const clientMessage = clientMessageOf(failure);
	return clientMessage === undefined
		? new ServiceError("internal", "the store failed while processing this request", { cause })
		: new ServiceError("unavailable", clientMessage, { cause });
}

/** Returns the error for a store thread that ended, or a database that cannot be opened: always `unavailable`. */
export function unavailable(failure: Failure): ServiceError {
	const error = storeError(failure);
	return error.kind === "unavailable"
		? error
		: new ServiceError("unavailable", "the store failed", { cause: error.cause });
}
