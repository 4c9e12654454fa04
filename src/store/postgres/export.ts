import { ServiceError } from "../../errors.ts";
import type { ThreadLogger } from "../../threads/worker-thread.ts";
import type { PostgresSettings } from "../database.ts";
import { countRows, finishRows, type ImportTarget, writeRows } from "../export/tables.ts";
import type { Session as AnySession } from "../session.ts";
import { resetViews, ViewFollower } from "../views/views.ts";
import { type Connections, openConnections, type TransactionOptions } from "./connections.ts";
import { migrate, SCHEMA_VERSION, schemaVersion } from "./schema.ts";
import { postgresSession } from "./session.ts";
import type { Session } from "./transaction.ts";

/** As `withExportSource`. Until `work` ends, the server keeps the row versions that the source sees. */
export async function withPostgresSource<Result>(
	settings: PostgresSettings,
	log: ThreadLogger,
	work: (source: AnySession) => Promise<Result>,
): Promise<Result> {
	await using connections = await openConnections(settings, log);
	const version = await connections.read(schemaVersion);
	if (version === 0) throw new Error(`the database ${settings.database} has no tables of this service`);
	if (version < SCHEMA_VERSION) throw new Error("an earlier release wrote the database; run migrate");
	await connections.read(requireFinished);
	// What was committed before is on all servers then.
	await connections.settle();
	return await inOneTransaction(connections, { snapshot: true }, (session) => work(postgresSession(session)));
}

/** Tables of which every append and every removal writes at least one. */
const WRITTEN_TABLES = "conversation_updates.state, conversation_updates.removals";

/**
 * As `withImportTarget`. Creates the tables if they are missing. Until the import is finished, no service can start with the
 * database, and a running service cannot write.
 *
 * @throws ServiceError `unavailable` also when another transaction prevents the lock on its tables
 */
export async function withPostgresTarget<Result>(
	settings: PostgresSettings,
	log: ThreadLogger,
	work: (target: ImportTarget) => Promise<Result>,
): Promise<Result> {
	await using connections = await openConnections(settings, log);
	await migrate(connections);
	return await inOneTransaction(connections, {}, async (session) => {
		await session.query(
			{ text: `SET LOCAL lock_timeout = ${settings.lockTimeout}` },
			{ text: `LOCK TABLE ${WRITTEN_TABLES} IN SHARE ROW EXCLUSIVE MODE` },
		);
		return await work(targetOf(connections, session));
	});
}

/** @param session the transaction that locks the tables, and is committed after the import */
function targetOf(connections: Connections, session: Session): ImportTarget {
	const own = postgresSession(session);
	return {
		async begin() {
			await requireFinished(session);
			const { updates, events } = await own.lockSequences();
			const counts = await countRows(own);
			if (updates > 0n || events > 0n || Object.values(counts).some((count) => count > 0))
				throw new Error("the database already holds data; its schema conversation_updates must be empty");
			// In a transaction of its own: the one that locks the tables is not committed before the import is finished.
			await connections.transaction((transaction) =>
				transaction.commit({ text: "INSERT INTO conversation_updates.unfinished_import VALUES (1)" }),
			);
		},
		write: (table, rows) =>
			connections.transaction((transaction) => writeRows(postgresSession(transaction), table, rows)),
		async finish(manifest) {
			await finishRows(own, manifest);
			await resetViews(own);
			const follower = new ViewFollower((work) => work(own));
			while (await follower.step());
			await session.query({ text: "DELETE FROM conversation_updates.unfinished_import" });
		},
	};
}

/** Runs work in a transaction without timeouts, once: what it locked or saw is lost when its connection breaks. */
async function inOneTransaction<Result>(
	connections: Connections,
	options: Pick<TransactionOptions, "snapshot">,
	work: (session: Session) => Promise<Result>,
): Promise<Result> {
	let isBegun = false;
	return await connections.transaction(
		async (session) => {
			if (isBegun) throw new Error("the connection of the transaction broke");
			isBegun = true;
			return await work(session);
		},
		{ ...options, unlimited: true },
	);
}

/** @throws ServiceError `unavailable` when the database holds an unfinished import */
export async function requireFinished(session: Session): Promise<void> {
	const [rows = []] = await session.query({ text: "SELECT 1 FROM conversation_updates.unfinished_import" });
	if (rows.length === 0) return;
	const cause = new Error(
		"an import into the database is not finished: drop the schema conversation_updates, and import again",
	);
	throw new ServiceError("unavailable", "the store's database cannot be opened", { cause });
}
