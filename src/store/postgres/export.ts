import type { ThreadLogger } from "../../threads/worker-thread.ts";
import type { PostgresSettings } from "../database.ts";
import { countRows } from "../export/tables.ts";
import type { Session as AnySession } from "../session.ts";
import type { RunInTransaction } from "../views/views.ts";
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
	// What was committed before is on all servers then.
	await connections.settle();
	return await inOneTransaction(connections, { snapshot: true }, (session) => work(postgresSession(session)));
}

/** Tables of which every append and every removal writes at least one. */
const WRITTEN_TABLES = "conversation_updates.state, conversation_updates.removals";

/**
 * As `withImportTarget`. Creates the tables if they are missing. Everything is imported in one transaction; until it ends, a
 * running service cannot write.
 *
 * @throws ServiceError `unavailable` also when another transaction prevents the lock on its tables
 */
export async function withPostgresTarget<Result>(
	settings: PostgresSettings,
	log: ThreadLogger,
	work: (run: RunInTransaction) => Promise<Result>,
): Promise<Result> {
	await using connections = await openConnections(settings, log);
	await migrate(connections);
	return await inOneTransaction(connections, {}, async (transaction) => {
		await transaction.query(
			{ text: `SET LOCAL lock_timeout = ${settings.lockTimeout}` },
			{ text: `LOCK TABLE ${WRITTEN_TABLES} IN SHARE ROW EXCLUSIVE MODE` },
		);
		const session = postgresSession(transaction);
		const { updates, events } = await session.lockSequences();
		const counts = await countRows(session);
		if (updates > 0n || events > 0n || Object.values(counts).some((count) => count > 0))
			throw new Error("the database already holds data; its schema conversation_updates must be empty");
		return await work((done) => done(session));
	});
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
