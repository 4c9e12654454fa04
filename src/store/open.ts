import type { ThreadLog } from "../threads/worker-thread.ts";
import type { PostgresSettings } from "./postgres/dial.ts";
import type { SqliteOptions } from "./sqlite/sqlite.ts";
import type { Store } from "./store.ts";
import type { CopyTarget, TransferDatabase } from "./transfer.ts";

/** The location of a store's data. */
export type Database =
	| { readonly engine: "sqlite"; readonly path: string }
	| ({ readonly engine: "postgres" } & PostgresSettings);

/**
 * Opens the store in a database. Loads only the engine of that database.
 *
 * @param options `onUncleanStop` has no effect for PostgreSQL
 * @throws ServiceError `unavailable` when the database cannot be opened; the cause says why
 */
export async function openStore(
	database: Database,
	log: ThreadLog,
	options: Pick<SqliteOptions, "isSameRecord" | "onUncleanStop" | "observer">,
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
 * @returns the schema versions before (0 when there were no tables) and after
 * @throws ServiceError `unavailable` when the migration fails; the cause says why
 */
export async function migrateDatabase(
	settings: PostgresSettings,
	log: ThreadLog,
): Promise<{ readonly from: number; readonly to: number }> {
	const { openConnections } = await import("./postgres/connections.ts");
	const { migrate } = await import("./postgres/migrate.ts");
	await using connections = await openConnections(settings, log);
	return await migrate(connections);
}

/**
 * Opens a database as the source of a copy.
 *
 * @throws Error when it cannot be opened, or it is in use
 */
export async function openCopySource(database: Database, log: ThreadLog): Promise<TransferDatabase> {
	if (database.engine === "sqlite") {
		const { openSqliteSource } = await import("./sqlite/transfer.ts");
		return await openSqliteSource(database.path, log);
	}
	const { openPostgresSource } = await import("./postgres/transfer.ts");
	return await openPostgresSource(database, log);
}

/**
 * Opens a database as the target of a copy.
 *
 * @throws Error when it cannot be opened, or it is in use
 */
export async function openCopyTarget(database: Database, log: ThreadLog): Promise<CopyTarget> {
	if (database.engine === "sqlite") {
		const { openSqliteTarget } = await import("./sqlite/transfer.ts");
		return await openSqliteTarget(database.path);
	}
	const { openPostgresTarget } = await import("./postgres/transfer.ts");
	return await openPostgresTarget(database, log);
}
