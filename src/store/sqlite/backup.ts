import { chownSync, closeSync, existsSync, fsyncSync, linkSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { backup, DatabaseSync } from "node:sqlite";
import { bigint } from "../values.ts";
import { immutable, lockDatabase, lockFile, openForReading, openForWriting, prepareFiles } from "./database.ts";
import { createSchema, schemaVersion } from "./schema.ts";
import { SQLITE } from "./sql.ts";

/** Called with the number of copied bytes and the size of the database in bytes. */
type OnProgress = (copied: number, total: number) => void;

/** Number of pages, 8 MiB together, that are copied between two calls of {@link OnProgress}. */
const PAGES_PER_STEP = 1024;

/**
 * Copies a database into a new file that only its owner may read. A service may write to the database meanwhile: the
 * copy has the state of one moment. The file gets its name only after the copy is complete and its integrity is
 * checked. The write-ahead log cannot be emptied meanwhile.
 *
 * @returns sequence number of the newest update in the copy
 * @throws Error when the database cannot be read or is damaged, or the file exists already or cannot be written
 */
export async function backupDatabase(path: string, file: string, onProgress: OnProgress): Promise<bigint> {
	if (existsSync(file)) throw new Error(`${file} already exists`);
	if (!existsSync(path)) throw new Error(`there is no database ${path}`);
	using source = openForReading({ path });
	const copy = `${file}.${process.pid}.partial`;
	try {
		const newest = await copyDatabase(source, copy, onProgress);
		// Unlike a rename, a link never replaces an existing file.
		linkSync(copy, file);
		return newest;
	} finally {
		rmSync(copy, { force: true });
		if (existsSync(dirname(file))) syncFolder(file);
	}
}

/**
 * Replaces a database that no service has open by a copy of a backup. The former database stays in place until the copy
 * is complete and its integrity is checked. When root runs this, the new file belongs to the owner of the folder.
 *
 * @returns sequence number of the newest update, and the new path of the replaced database; undefined when there was none
 * @throws ServiceError `unavailable` when a service has the database open
 * @throws Error when the file is not a backup, or the folder cannot be written
 */
export async function restoreDatabase(database: string, file: string, onProgress: OnProgress) {
	if (!existsSync(file)) throw new Error(`there is no file ${file}`);
	// A program that only reads a backup leaves an empty log beside it.
	if ((statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0)
		throw new Error(`${file} has a write-ahead log, so the command backup did not create it`);
	const path = prepareFiles(database);
	using _lock = lockDatabase(path);
	// Opened as immutable, so that the backup may be in a read-only folder.
	using source = new DatabaseSync(immutable(file), { readOnly: true, readBigInts: true });
	const copy = `${path}.restoring`;
	rmSync(copy, { force: true });
	try {
		const newest = await copyDatabase(source, copy, onProgress);
		const replacedPath = statSync(path).size === 0 ? undefined : setAside(path);
		putInPlace(copy, path);
		return { newest, replacedPath };
	} finally {
		rmSync(copy, { force: true });
	}
}

/** Renames the closed file of a copy to the path of a database, durably. The caller has the lock of that database. */
export function putInPlace(copy: string, path: string): void {
	// Root may create the copy for a service that another user runs.
	const { uid, gid } = statSync(dirname(path));
	if (process.getuid?.() === 0) for (const file of [copy, lockFile(path)]) chownSync(file, uid, gid);
	renameSync(copy, path);
	syncFolder(path);
}

/** Copies a snapshot of a database into a new file, checks its integrity and upgrades it to the present schema. */
async function copyDatabase(source: DatabaseSync, target: string, onProgress: OnProgress): Promise<bigint> {
	// Without one read transaction around the copy, each commit of another process would restart it.
	source.exec("BEGIN");
	if (schemaVersion(source) === 0) throw new Error("the file is not a database of this service");
	closeSync(openSync(target, "wx", 0o600));
	const total = databaseBytes(source);
	await backup(source, target, {
		rate: PAGES_PER_STEP,
		progress: ({ totalPages, remainingPages }) => onProgress(total * (1 - remainingPages / totalPages), total),
	});
	onProgress(total, total);
	using copy = new DatabaseSync(target, { readBigInts: true });
	const [problem] = copy.prepare("PRAGMA integrity_check(1)").all();
	if (problem?.integrity_check !== "ok") throw new Error(`the database is damaged: ${problem?.integrity_check}`);
	createSchema(copy);
	return bigint(copy.prepare(`SELECT ${SQLITE.dialect.newest.updates} AS newest`).get()?.newest);
}

function databaseBytes(database: DatabaseSync): number {
	const row = database.prepare("SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size").get();
	return Number(row?.bytes);
}

/** Renames a database that no process has open. Returns its new path. */
function setAside(path: string): string {
	try {
		// The last connection to close checkpoints the write-ahead log into the database file.
		openForWriting({ path }).close();
	} catch {
		// The database may be replaced because it is damaged. It then keeps its log, which is renamed as well.
	}
	const newPath = `${path}.before-${new Date().toISOString().replaceAll(/[-:.]/g, "")}`;
	rmSync(`${path}-shm`, { force: true });
	if (existsSync(`${path}-wal`)) renameSync(`${path}-wal`, `${newPath}-wal`);
	renameSync(path, newPath);
	return newPath;
}

/** Makes changes of names in a file's folder durable. */
function syncFolder(file: string): void {
	const folder = openSync(dirname(file), "r");
	try {
		fsyncSync(folder);
	} finally {
		closeSync(folder);
	}
}
