import { DatabaseSync } from "node:sqlite";
import { ServiceError } from "../../errors.ts";
import { failureOf } from "../../threads/protocol.ts";
import { unavailable } from "./result-codes.ts";

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
