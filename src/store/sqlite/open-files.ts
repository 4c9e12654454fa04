import { type BigIntStats, realpathSync, statSync } from "node:fs";

/** Extended result code of SQLite for a database file that was moved after it was opened. */
export const SQLITE_READONLY_DBMOVED = 1032;

/** A file of the database is no longer at its path, so the next start may not find what is written. */
export class MovedError extends Error {
	readonly errcode = SQLITE_READONLY_DBMOVED;
}

interface OpenFile {
	readonly path: string;
	/** The file that was at the path when the database was opened. */
	readonly opened: BigIntStats | undefined;
}

/**
 * The files of a database that is open in WAL mode. An open file can still be written after its name was removed, so a
 * successful commit does not prove that the next start will find the data.
 */
export class OpenFiles {
	readonly #database: OpenFile;
	readonly #others: readonly OpenFile[];

	/** Call this after the first transaction, which creates the write-ahead log and its index. */
	constructor(path: string) {
		// The path may be a symbolic link. The other files are beside the file that it points to.
		const realPath = realpathSync(path);
		this.#database = openFile(path);
		this.#others = [...(realPath === path ? [] : [realPath]), `${realPath}-wal`, `${realPath}-shm`].map(openFile);
	}

	/**
	 * Checks that all files are at their paths. Makes one system call for each file.
	 *
	 * @throws MovedError while one of the files is not at its path
	 */
	verify(): void {
		for (const { path, opened } of [this.#database, ...this.#others]) {
			const found = statOf(path, (reason) => {
				throw new MovedError(`${path} cannot be reached while the database is open: ${reason}`);
			});
			if (found === undefined) throw new MovedError(`${path} was deleted or moved while the database was open`);
			if (!isSameFile(found, opened)) throw new MovedError(`${path} was replaced by another file while it was open`);
		}
	}

	/** Whether the database file is at its path, so that a checkpoint saves the contents of the write-ahead log. */
	get isDatabaseInPlace(): boolean {
		return isSameFile(statOf(this.#database.path), this.#database.opened);
	}
}

function openFile(path: string): OpenFile {
	return { path, opened: statOf(path) };
}

/**
 * Returns the status of a file; undefined when it does not exist or cannot be reached, for example because a folder of
 * its path may not be searched. The numbers are bigints, because inode numbers can exceed 2^53.
 *
 * @param onUnreachable called with the reason when the file cannot be reached
 */
function statOf(path: string, onUnreachable: (reason: string) => void = () => undefined): BigIntStats | undefined {
	try {
		return statSync(path, { bigint: true, throwIfNoEntry: false });
	} catch (error) {
		onUnreachable(error instanceof Error ? error.message : String(error));
		return undefined;
	}
}

function isSameFile(a: BigIntStats | undefined, b: BigIntStats | undefined): boolean {
	return a !== undefined && b !== undefined && a.ino === b.ino && a.dev === b.dev;
}
