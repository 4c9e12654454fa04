import type { ThreadLogger } from "../threads/worker-thread.ts";
import type { Database, PostgresSettings } from "./database.ts";
import type { PostgresOptions } from "./postgres/postgres.ts";
import type { Session } from "./session.ts";
import type { SqliteOptions } from "./sqlite/sqlite.ts";
import type { Store } from "./store.ts";
import type { RunInTransaction } from "./views/views.ts";

/**
 * Opens the store in a database. Loads only the engine of that database.
 *
 * @param options `distribute` has no effect for SQLite
 * @throws ServiceError `unavailable` when the database cannot be opened; the cause says why
 */
export async function openStore(
	database: Database,
	log: ThreadLogger,
	options: Pick<SqliteOptions, "isSameRecord" | "observer"> & Pick<PostgresOptions, "distribute">,
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
 * Calls `work` with a database to export, which it sees as it was at one moment. Services may write to it meanwhile.
 *
 * @throws Error when it is empty, another program's or another release's; ServiceError `unavailable` when it cannot be opened
 */
export async function withExportSource<Result>(
	database: Database,
	log: ThreadLogger,
	work: (source: Session) => Promise<Result>,
): Promise<Result> {
	if (database.engine === "sqlite") {
		const { withSqliteSource } = await import("./sqlite/export.ts");
		return await withSqliteSource(database.path, work);
	}
	const { withPostgresSource } = await import("./postgres/export.ts");
	return await withPostgresSource(database, log, work);
}

/**
 * Calls `work` with what runs transactions in a database as the target of an import. The database has what these wrote when
 * `work` has succeeded; otherwise it stays without data.
 *
 * @throws Error when it holds data; ServiceError `unavailable` when it cannot be opened, or a service has it open
 */
export async function withImportTarget<Result>(
	database: Database,
	log: ThreadLogger,
	work: (run: RunInTransaction) => Promise<Result>,
): Promise<Result> {
	if (database.engine === "sqlite") {
		const { withSqliteTarget } = await import("./sqlite/export.ts");
		return await withSqliteTarget(database.path, work);
	}
	const { withPostgresTarget } = await import("./postgres/export.ts");
	return await withPostgresTarget(database, log, work);
}
