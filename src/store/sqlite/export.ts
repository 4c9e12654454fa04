import { closeSync, openSync, rmSync, statSync } from "node:fs";
import type { Session } from "../session.ts";
import type { RunInTransaction } from "../views/views.ts";
import { putInPlace } from "./backup.ts";
import { lockDatabase, openForReading, openForWriting, prepareFiles, transaction, unfinishedFile } from "./database.ts";
import { createSchema, SCHEMA_VERSION, schemaVersion } from "./schema.ts";
import { sqliteSession } from "./session.ts";
import { Statements } from "./sql.ts";

/** As `withExportSource`. The write-ahead log cannot be emptied before `work` ends. */
export async function withSqliteSource<Result>(
	path: string,
	work: (source: Session) => Promise<Result>,
): Promise<Result> {
	if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) === 0) throw new Error(`there is no database ${path}`);
	using database = openForReading({ path });
	if (schemaVersion(database) < SCHEMA_VERSION)
		throw new Error("an earlier release wrote the database; start the service once to upgrade it");
	// All reads see the database as it is at the first one.
	database.exec("BEGIN");
	return await work(sqliteSession(new Statements(database)));
}

/** As `withImportTarget`. Until the import is finished, it is in a separate file beside the path. */
export async function withSqliteTarget<Result>(
	database: string,
	work: (run: RunInTransaction) => Promise<Result>,
): Promise<Result> {
	const path = prepareFiles(database);
	using _lock = lockDatabase(path);
	if (statSync(path).size > 0) throw new Error(`${path} already exists`);
	const file = unfinishedFile(path);
	const remove = () => {
		for (const end of ["", "-wal", "-shm"]) rmSync(`${file}${end}`, { force: true });
	};
	// Of an import that was killed.
	remove();
	closeSync(openSync(file, "wx", 0o600));
	try {
		using unfinished = openForWriting({ path: file });
		createSchema(unfinished);
		const session = sqliteSession(new Statements(unfinished));
		const result = await work((done) => transaction(unfinished, "BEGIN IMMEDIATE", () => done(session)));
		unfinished.exec("PRAGMA wal_checkpoint(TRUNCATE)");
		unfinished.close();
		putInPlace(file, path);
		return result;
	} finally {
		remove();
		// An empty file that stayed would look like an emptied database.
		if (statSync(path).size === 0) rmSync(path);
	}
}
