import type { ThreadLogger } from "../threads/worker-thread.ts";
import type { Database, PostgresSettings } from "./database.ts";
import type { ExportSource, ImportTarget } from "./export/tables.ts";
import type { PostgresOptions } from "./postgres/postgres.ts";
import type { SqliteOptions } from "./sqlite/sqlite.ts";
import type { Store } from "./store.ts";

/**
 * Opens the store in a database. Loads only the engine of that database.
 *
 * @param options `onUncleanStop` has no effect for PostgreSQL, `distribute` none for SQLite
 * @throws ServiceError `unavailable` when the database cannot be opened; the cause says why
 */
export async function openStore(
	database: Database,
	log: ThreadLogger,
	options: Pick<SqliteOptions, "isSameRecord" | "onUncleanStop" | "observer"> & Pick<PostgresOptions, "distribute">,
): Promise<Store> {
	if (database.engine === "sqlite") {
		const { openSqliteStore } = await import("./sqlite/sqlite.ts");
		return await openSqliteStore(database.path, log, options);
	}
	const { openConnections } = await import("./postgres/connections.ts");
	const { openPostgresStore } = await import("./postgres/postgres.ts");
	return await openPostgresStore(await openConnections(database, log), log, options);
}

/**
 * Creates or upgrades the tables of a PostgreSQL database.
 *
 * @param spread whether to spread them over the servers of Citus
 * @returns the schema versions before (0 when there were no tables) and after
 * @throws ServiceError `unavailable` when the migration fails; the cause says why
 */
export async function migrateDatabase(
	settings: PostgresSettings,
	log: ThreadLogger,
	spread: boolean,
): Promise<{ readonly from: number; readonly to: number }> {
	const { openConnections } = await import("./postgres/connections.ts");
	const { migrate } = await import("./postgres/schema.ts");
	await using connections = await openConnections(settings, log);
	return await migrate(connections, spread);
}

/**
 * Opens a database for an export. Services may write to it meanwhile.
 *
 * @throws Error when it cannot be opened, or is empty
 */
export async function openExportSource(database: Database, log: ThreadLogger): Promise<ExportSource> {
	if (database.engine === "sqlite") {
		const { openSqliteSource } = await import("./sqlite/export.ts");
		return openSqliteSource(database.path);
	}
	const { openPostgresSource } = await import("./postgres/export.ts");
	return await openPostgresSource(database, log);
}

/**
 * Opens a database as the target of an import.
 *
 * @throws Error when it cannot be opened, or is in use
 */
export async function openImportTarget(database: Database, log: ThreadLogger): Promise<ImportTarget> {
	if (database.engine === "sqlite") {
		const { openSqliteTarget } = await import("./sqlite/export.ts");
		return openSqliteTarget(database.path);
	}
	const { openPostgresTarget } = await import("./postgres/export.ts");
	return await openPostgresTarget(database, log);
}
