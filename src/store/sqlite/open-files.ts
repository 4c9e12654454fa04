import { type BigIntStats, realpathSync, statSync } from "node:fs";

/** SQLite's extended result code for a database file that was moved after it was opened (SQLITE_READONLY_DBMOVED). */
export const MOVED = 1032;

/** A file of the database is not at its path, so what is written may be lost with the next start. */
export class MovedError extends Error {
	readonly errcode = MOVED;
}

interface OpenFile {
	readonly path: string;
	/** File that was at the path when the database was opened. */
	readonly opened: BigIntStats | undefined;
}

/**
 * The files of a database that is open in WAL mode. An open file can be written after its name was removed, so a commit
 * alone does not prove that the next start will find it.
 */
export class OpenFiles {
	readonly #database: OpenFile;
	readonly #others: readonly OpenFile[];

	/** To be made after the first transaction, which creates the write-ahead log and its index. */
	constructor(path: string) {
		// A symbolic link leads to the database file; the others are beside that file.
		const real = realpathSync(path);
		this.#database = openFile(path);
		this.#others = [...(real === path ? [] : [real]), `${real}-wal`, `${real}-shm`].map(openFile);
	}

	/**
	 * Costs one call of the operating system for each of the files.
	 *
	 * @throws MovedError when one of the files is not at its path; when it is back, no more
	 */
	verify(): void {
		for (const { path, opened } of [this.#database, ...this.#others]) {
			const found = statOf(path, (reason) => {
				throw new MovedError(`${path} cannot be reached while the database is open: ${reason}`);
			});
			if (found === undefined) throw new MovedError(`${path} was deleted or moved while the database was open`);
			if (!isSame(found, opened)) throw new MovedError(`${path} was replaced by another file while it was open`);
		}
	}

	/** Whether the database file is at its path, so that a checkpoint saves what the write-ahead log holds. */
	get isDatabaseInPlace(): boolean {
		return isSame(statOf(this.#database.path), this.#database.opened);
	}
}

function openFile(path: string): OpenFile {
	return { path, opened: statOf(path) };
}

/**
 * Undefined for a path that leads to nothing, or that cannot be looked at, such as below a folder that may not be
 * searched. Inodes can be larger than 2^53.
 *
 * @param unreachable is told why a path cannot be looked at
 */
function statOf(path: string, unreachable: (reason: string) => void = () => undefined): BigIntStats | undefined {
	try {
		return statSync(path, { bigint: true, throwIfNoEntry: false });
	} catch (error) {
		unreachable(error instanceof Error ? error.message : String(error));
		return undefined;
	}
}

function isSame(a: BigIntStats | undefined, b: BigIntStats | undefined): boolean {
	return a !== undefined && b !== undefined && a.ino === b.ino && a.dev === b.dev;
}
