import { ServiceError } from "../../errors.ts";
import type { ThreadLogger } from "../../threads/worker-thread.ts";
import type { PostgresSettings } from "../database.ts";
import { countRows, type ExportSource, finishRows, type ImportTarget, sourceOf, writeRows } from "../export/tables.ts";
import { resetViews, ViewFollower } from "../views/views.ts";
import { type Connections, openConnections, type TransactionOptions } from "./connections.ts";
import { migrate, SCHEMA_VERSION, schemaVersion } from "./schema.ts";
import { postgresSession } from "./session.ts";
import type { Query, Session } from "./transaction.ts";

/**
 * Opens a database for an export. Services may write to it meanwhile. Until the source is closed, the server keeps the
 * row versions that it sees.
 *
 * @throws Error when the database has no tables of this service, or those of another release
 * @throws ServiceError `unavailable` when it cannot be opened, or holds an unfinished import
 */
export async function openPostgresSource(settings: PostgresSettings, log: ThreadLogger): Promise<ExportSource> {
	const connections = await openConnections(settings, log);
	return await openOrClose(connections, async () => {
		const version = await connections.read(schemaVersion);
		if (version === 0) throw new Error(`the database ${settings.database} has no tables of this service`);
		if (version < SCHEMA_VERSION) throw new Error("an earlier release wrote the database; run migrate");
		await connections.read(requireFinished);
		// What was committed before is on all servers then.
		await connections.settle();
		const held = await holdTransaction(connections, { snapshot: true });
		return { ...sourceOf(postgresSession(held.session)), [Symbol.asyncDispose]: () => close(connections, held) };
	});
}

/** Tables of which every append and every removal writes at least one. */
const WRITTEN_TABLES = "conversation_updates.state, conversation_updates.removals";

/**
 * Opens a database as the target of an import, and creates its tables if they are missing. Until the import is finished,
 * no service can start with it, and a running service cannot write.
 *
 * @throws ServiceError `unavailable` when it cannot be opened, or another transaction prevents the lock on its tables
 */
export async function openPostgresTarget(settings: PostgresSettings, log: ThreadLogger): Promise<ImportTarget> {
	const connections = await openConnections(settings, log);
	return await openOrClose(connections, async () => {
		await migrate(connections);
		const lock = [
			{ text: `SET LOCAL lock_timeout = ${settings.lockTimeout}` },
			{ text: `LOCK TABLE ${WRITTEN_TABLES} IN SHARE ROW EXCLUSIVE MODE` },
		];
		return targetOf(connections, await holdTransaction(connections, {}, ...lock));
	});
}

async function openOrClose<Opened>(connections: Connections, open: () => Promise<Opened>): Promise<Opened> {
	try {
		return await open();
	} catch (error) {
		await connections[Symbol.asyncDispose]();
		throw error;
	}
}

/** @param held the transaction that locks the tables */
function targetOf(connections: Connections, held: HeldTransaction): ImportTarget {
	const { session } = held;
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
		async finish(ranges, counts) {
			await finishRows(own, ranges, counts);
			await resetViews(own);
			const follower = new ViewFollower((work) => work(own));
			while (await follower.step());
			await session.query({ text: "DELETE FROM conversation_updates.unfinished_import" });
			await held.release(true);
		},
		[Symbol.asyncDispose]: () => close(connections, held),
	};
}

async function close(connections: Connections, held: HeldTransaction): Promise<void> {
	await held.release(false);
	await connections[Symbol.asyncDispose]();
}

/** A transaction without timeouts that stays open until it is released. */
interface HeldTransaction {
	/** @throws {DatabaseError} also when the connection broke, which ended the transaction */
	readonly session: Session;
	/** Ends the transaction unless it has ended: commits it, or rolls it back when `commits` is false. */
	release(commits: boolean): Promise<void>;
}

/**
 * Begins a transaction and runs its first queries.
 *
 * @throws {DatabaseError}
 */
async function holdTransaction(
	connections: Connections,
	options: Pick<TransactionOptions, "snapshot">,
	...first: readonly Query[]
): Promise<HeldTransaction> {
	const begun = Promise.withResolvers<Session>();
	const released = Promise.withResolvers<void>();
	let [isBegun, isReleased] = [false, false];
	const ended = connections.transaction(
		async (transaction) => {
			// This is a retry after the connection broke. What the transaction locked or saw is lost.
			if (isBegun) throw new Error("the connection of the transaction broke");
			await transaction.query(...first);
			isBegun = true;
			begun.resolve(transaction);
			await released.promise;
		},
		{ ...options, unlimited: true },
	);
	ended.catch(begun.reject);
	released.promise.catch(() => undefined);
	const session = await begun.promise;
	return {
		session,
		async release(commits) {
			if (isReleased) return;
			isReleased = true;
			if (commits) released.resolve();
			else released.reject(new RolledBack());
			await ended.catch((error: unknown) => {
				if (!(error instanceof RolledBack)) throw error;
			});
		},
	};
}

class RolledBack extends Error {}

/** @throws ServiceError `unavailable` when the database holds an unfinished import */
export async function requireFinished(session: Session): Promise<void> {
	const [rows = []] = await session.query({ text: "SELECT 1 FROM conversation_updates.unfinished_import" });
	if (rows.length === 0) return;
	const cause = new Error(
		"an import into the database is not finished: drop the schema conversation_updates, and import again",
	);
	throw new ServiceError("unavailable", "the store's database cannot be opened", { cause });
}
