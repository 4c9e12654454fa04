import { closeSync, openSync, rmSync, statSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import { type ExportSource, finishRows, type ImportTarget, sourceOf, writeRows } from "../export/tables.ts";
import { resetViews, ViewFollower } from "../views/views.ts";
import { putInPlace } from "./backup.ts";
import {
	lockDatabase,
	openForReading,
	openForWriting,
	prepareFiles,
	transaction,
	transactionAsync,
	unfinishedFile,
} from "./database.ts";
import { createSchema, SCHEMA_VERSION, schemaVersion } from "./schema.ts";
import { sqliteSession } from "./session.ts";
import { Statements } from "./statements.ts";

/**
 * Opens a database for an export. A service may write to it meanwhile. The write-ahead log cannot be emptied before the
 * source is closed.
 *
 * @throws Error when there is no such database, it is another program's, or another release wrote it
 */
export function openSqliteSource(path: string): ExportSource {
	if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) === 0) throw new Error(`there is no database ${path}`);
	const database = openForReading({ path });
	try {
		if (schemaVersion(database) < SCHEMA_VERSION)
			throw new Error("an earlier release wrote the database; start the service once to upgrade it");
		// All reads see the database as it is at the first one.
		database.exec("BEGIN");
		const session = sqliteSession(new Statements(database));
		return { ...sourceOf(session), [Symbol.asyncDispose]: async () => database.close() };
	} catch (error) {
		database.close();
		throw error;
	}
}

/**
 * Opens a database as the target of an import. Until the import is finished, it is in a separate file beside the path.
 *
 * @throws Error when there is a database at the path
 * @throws ServiceError `unavailable` when the files cannot be created, or a service has the database open
 */
export function openSqliteTarget(database: string): ImportTarget {
	const path = prepareFiles(database);
	const lock = lockDatabase(path);
	try {
		if (statSync(path).size > 0) throw new Error(`${path} already exists`);
		const unfinished = unfinishedFile(path);
		// Of an import that was interrupted.
		for (const end of ["", "-wal", "-shm"]) rmSync(`${unfinished}${end}`, { force: true });
		closeSync(openSync(unfinished, "wx", 0o600));
		return targetOf(openForWriting({ path: unfinished }), lock, { unfinished, path });
	} catch (error) {
		lock[Symbol.dispose]();
		throw error;
	}
}

/** The files of an import. */
interface Files {
	/** Path of the file that the open database is in. */
	readonly unfinished: string;
	/** Path to which the file is renamed when the import is finished. */
	readonly path: string;
}

function targetOf(database: DatabaseSync, lock: Disposable, { unfinished, path }: Files): ImportTarget {
	const session = sqliteSession(new Statements(database));
	let isBegun = false;
	return {
		async begin() {
			transaction(database, "BEGIN IMMEDIATE", () => createSchema(database));
			isBegun = true;
		},
		write: (table, rows) => transactionAsync(database, "BEGIN IMMEDIATE", () => writeRows(session, table, rows)),
		async finish(ranges, counts) {
			await transactionAsync(database, "BEGIN IMMEDIATE", () => finishRows(session, ranges, counts));
			await transactionAsync(database, "BEGIN IMMEDIATE", () => resetViews(session));
			const follower = new ViewFollower((work) => transactionAsync(database, "BEGIN IMMEDIATE", () => work(session)));
			while (await follower.step());
			database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
			database.close();
			putInPlace(unfinished, path);
		},
		async [Symbol.asyncDispose]() {
			if (database.isOpen) database.close();
			if (!isBegun) rmSync(unfinished);
			// An empty file that stayed would look like an emptied database.
			if (statSync(path).size === 0) rmSync(path);
			lock[Symbol.dispose]();
		},
	};
}
