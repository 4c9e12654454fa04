import type { ThreadLog } from "../threads/worker-thread.ts";
import type { PostgresSettings } from "./postgres/dial.ts";
import type { SqliteOptions } from "./sqlite/sqlite.ts";
import type { Store } from "./store.ts";

/** Where a store keeps its data. */
export type Database =
	| { readonly engine: "sqlite"; readonly path: string }
	| ({ readonly engine: "postgres" } & PostgresSettings);

/**
 * Opens the store of the engine that a database is of. Only that engine is loaded.
 *
 * @param options those that the engine has; PostgreSQL has no `onWalLoss`
 * @throws ServiceError `unavailable` when the database cannot be opened; the cause says why
 */
export async function openStore(
	database: Database,
	log: ThreadLog,
	options: Pick<SqliteOptions, "isSame" | "onWalLoss" | "observer">,
): Promise<Store> {
	if (database.engine === "sqlite") {
		const { openSqliteStore } = await import("./sqlite/sqlite.ts");
		return await openSqliteStore(database.path, log, options);
	}
	const { openConnections } = await import("./postgres/connections.ts");
	const { openPostgresStore } = await import("./postgres/postgres.ts");
	return await openPostgresStore(await openConnections(database, log), log, options);
}
