import { chownSync, closeSync, existsSync, fsyncSync, linkSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { backup, DatabaseSync } from "node:sqlite";
import { immutable, openForReading, openForWriting, prepareFiles, transaction } from "./database.ts";
import { lockDatabase, lockFile } from "./lock.ts";
import { readRange } from "./log.ts";
import { createSchema, schemaVersion } from "./schema.ts";
import { Statements } from "./statements.ts";

/** Told how many of the database's bytes are copied. */
export type OnProgress = (copied: number, total: number) => void;

/** Pages that are copied between two calls of {@link OnProgress}: 8 MiB. */
const PAGES = 1024;

/**
 * Copies a database, also while a service writes to it, into a new file that only its owner may read. The copy shows one
 * moment, and has its name only when it is whole and sound. The write-ahead log cannot be emptied meanwhile.
 *
 * @returns sequence of the newest update in the copy
 * @throws Error when the database cannot be read or is damaged, or the file is there already or cannot be written
 */
export async function backupDatabase(path: string, file: string, onProgress: OnProgress): Promise<bigint> {
	if (existsSync(file)) throw new Error(`${file} is there already`);
	if (!existsSync(path)) throw new Error(`there is no database ${path}`);
	using source = openForReading({ path });
	const copy = `${file}.${process.pid}.partial`;
	try {
		const newest = await copyDatabase(source, copy, onProgress);
		// A link, unlike a rename, replaces nothing.
		linkSync(copy, file);
		return newest;
	} finally {
		rmSync(copy, { force: true });
		if (existsSync(dirname(file))) syncFolder(file);
	}
}

/** What a restore has done. */
export interface Restored {
	/** Sequence of the newest update. */
	readonly newest: bigint;
	/** Where the former database is; undefined when there was none. */
	readonly former: string | undefined;
}

/**
 * Puts the copy of a backup in the place of a database that no service has open. Nothing is changed unless the copy is
 * whole and sound. As root, it makes a file that belongs to the owner of the folder.
 *
 * @throws ServiceError `unavailable` when a service has the database open
 * @throws Error when the file is no backup, or the folder cannot be written
 */
export async function restoreDatabase(database: string, file: string, onProgress: OnProgress): Promise<Restored> {
	if (!existsSync(file)) throw new Error(`there is no file ${file}`);
	if (existsSync(`${file}-wal`)) throw new Error(`${file} has a write-ahead log, so it is no file that backup made`);
	const path = prepareFiles(database);
	using _lock = lockDatabase(path);
	// Immutable, so that it may lie where nothing can be written.
	using source = new DatabaseSync(immutable(file), { readOnly: true, readBigInts: true });
	const copy = `${path}.restoring`;
	rmSync(copy, { force: true });
	try {
		const newest = await copyDatabase(source, copy, onProgress);
		const former = statSync(path).size === 0 ? undefined : setAside(path);
		putInPlace(copy, path);
		return { newest, former };
	} finally {
		rmSync(copy, { force: true });
	}
}

/** Gives the closed file of a copy the name of a database whose lock the caller has, durably. */
export function putInPlace(copy: string, path: string): void {
	// Root may copy what another user's service opens.
	const { uid, gid } = statSync(dirname(path));
	if (process.getuid?.() === 0) for (const file of [copy, lockFile(path)]) chownSync(file, uid, gid);
	renameSync(copy, path);
	syncFolder(path);
}

/** Copies one state of a database into a new file, checks the copy and gives it the present schema. */
async function copyDatabase(source: DatabaseSync, target: string, onProgress: OnProgress): Promise<bigint> {
	// In one transaction that reads, so that commits of others do not make the copy begin anew, again and again.
	source.exec("BEGIN");
	if (schemaVersion(source) === 0) throw new Error("the file is not a database of this service");
	closeSync(openSync(target, "wx", 0o600));
	const total = statSize(source);
	await backup(source, target, {
		rate: PAGES,
		progress: ({ totalPages, remainingPages }) => onProgress(total * (1 - remainingPages / totalPages), total),
	});
	onProgress(total, total);
	using copy = new DatabaseSync(target, { readBigInts: true });
	const [problem] = copy.prepare("PRAGMA integrity_check(1)").all();
	if (problem?.integrity_check !== "ok") throw new Error(`the database is damaged: ${problem?.integrity_check}`);
	transaction(copy, "BEGIN IMMEDIATE", () => createSchema(copy));
	return readRange(new Statements(copy), "updates", {}).newest;
}

function statSize(database: DatabaseSync): number {
	const row = database.prepare("SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size").get();
	return Number(row?.bytes);
}

/** Renames a database that nobody has open. Answers its new path. */
function setAside(path: string): string {
	try {
		// The last connection that closes moves the write-ahead log into the file.
		openForWriting({ path }).close();
	} catch {
		// A damaged database, which may be why it is replaced, keeps its log beside it.
	}
	const former = `${path}.before-${new Date().toISOString().replaceAll(/[-:.]/g, "")}`;
	rmSync(`${path}-shm`, { force: true });
	if (existsSync(`${path}-wal`)) renameSync(`${path}-wal`, `${former}-wal`);
	renameSync(path, former);
	return former;
}

/** Makes names in the folder of a file durable. */
function syncFolder(file: string): void {
	const folder = openSync(dirname(file), "r");
	try {
		fsyncSync(folder);
	} finally {
		closeSync(folder);
	}
}
