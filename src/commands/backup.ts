import type { Config } from "../config/config.ts";
import { showProgress } from "../progress.ts";
import type { Database } from "../store/database.ts";
import { backupDatabase, restoreDatabase } from "../store/sqlite/backup.ts";
import { mebibytes, print } from "./output.ts";

/** The command `backup`. */
export async function backupTo(file: string, { database }: Config): Promise<void> {
	const path = sqlitePath(database);
	const newest = await backupDatabase(path, file, showProgress(mebibytes, "copied"));
	print(`${file} holds the database ${path} up to sequence ${newest}.`);
}

/** The command `restore`. */
export async function restoreFrom(file: string, { database }: Config): Promise<void> {
	const path = sqlitePath(database);
	const { newest, replacedPath } = await restoreDatabase(path, file, showProgress(mebibytes, "copied"));
	const kept = replacedPath === undefined ? "" : ` The former database is ${replacedPath}.`;
	print(`${path} is restored from ${file}, up to sequence ${newest}.${kept}`);
}

/** @throws Error when the database is not a SQLite file */
function sqlitePath(database: Database): string {
	if (database.engine === "sqlite") return database.path;
	throw new Error(
		"backup and restore are only for SQLite; for PostgreSQL use pg_dump and pg_restore, or export and import",
	);
}
