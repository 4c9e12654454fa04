import { DatabaseSync } from "node:sqlite";
import { ServiceError } from "../../errors.ts";
import { failureOf } from "../../threads/failure.ts";
import { unavailable } from "./result-codes.ts";

/** How long to wait for another process's lock, in milliseconds, when nothing else is said. */
export const LOCK_TIMEOUT = 2_000;

/** File whose lock says that a process has the database at `path` open for writing. It stays, empty. */
export function lockFile(path: string): string {
	return `${path}.lock`;
}

/**
 * Takes a database for this process, until the lock is disposed of or the process ends in whatever way. The lock is on a
 * file of its own, so that other programs can read the database meanwhile. The file must be there.
 *
 * @param timeout how long to wait for the process that has it, in milliseconds
 * @throws ServiceError `unavailable` when another process keeps it
 */
export function lockDatabase(path: string, timeout: number = LOCK_TIMEOUT): Disposable {
	// Node.js has no file locks of its own; SQLite's end with the process and are free of races.
	const lock = new DatabaseSync(lockFile(path), { timeout });
	try {
		// A journal on disk would be another file.
		lock.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
	} catch (error) {
		lock.close();
		const failure = failureOf(error);
		if (failure.code !== 5) throw unavailable(failure);
		const cause = new Error(`the service runs already with ${path}`);
		throw new ServiceError("unavailable", "the store is locked by another process", { cause });
	}
	return lock;
}
