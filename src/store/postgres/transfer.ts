import type { ThreadLog } from "../../threads/worker-thread.ts";
import {
	type Contents,
	type CopyTarget,
	describeContents,
	requireContents,
	type TransferDatabase,
} from "../transfer.ts";
import { type Connections, openConnections } from "./connections.ts";
import type { PostgresSettings } from "./dial.ts";
import { listEvents } from "./events.ts";
import { listConversations } from "./list-conversations.ts";
import { type LockedTables, lockTables } from "./locked-tables.ts";
import { readRange, readRetentionTime, saveRetentionTime } from "./log.ts";
import { migrate, schemaVersion } from "./migrate.ts";
import type { Session } from "./transaction.ts";
import { countRows, insertQueries, lastKey, transferRows } from "./transfer-rows.ts";
import { requireFinished, sourceOfUnfinished } from "./unfinished.ts";
import { listUpdates } from "./updates.ts";

/**
 * Opens a database as the source of a copy, and migrates its schema to this release's version. While it is open, appends
 * and removals wait, and those of a service fail after POSTGRES_LOCK_TIMEOUT.
 *
 * @throws Error when the database has no tables of this service
 * @throws ServiceError `unavailable` when it cannot be opened, or another transaction prevents the lock on its tables
 */
export async function openPostgresSource(settings: PostgresSettings, log: ThreadLog): Promise<TransferDatabase> {
	const connections = await openConnections(settings, log);
	return await openOrClose(connections, async () => {
		if ((await connections.read(schemaVersion)) === 0)
			throw new Error(`the database ${settings.database} has no tables of this service`);
		await migrate(connections);
		await connections.read(requireFinished);
		return transferOf(connections, await lockTables(connections, settings.lockTimeout));
	});
}

/**
 * Opens a database as the target of a copy, and creates its tables if they are missing. Until the copy is complete, no
 * service can start with it, and a running service cannot write.
 *
 * @throws ServiceError `unavailable` when it cannot be opened, or another transaction prevents the lock on its tables
 */
export async function openPostgresTarget(settings: PostgresSettings, log: ThreadLog): Promise<CopyTarget> {
	const connections = await openConnections(settings, log);
	return await openOrClose(connections, async () => {
		await migrate(connections);
		return targetOf(connections, await lockTables(connections, settings.lockTimeout));
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

function transferOf(connections: Connections, locked: LockedTables): TransferDatabase {
	return {
		contents: () => contentsOf(locked),
		rows: (table, after) => connections.read((session) => transferRows(session, table, after)),
		reads: {
			updates: { list: (query) => connections.read((session) => listUpdates(session, query)) },
			events: { list: (query) => connections.read((session) => listEvents(session, query)) },
			listConversations: (query) => connections.read((session) => listConversations(session, query)),
		},
		async [Symbol.asyncDispose]() {
			await locked.release(false);
			await connections[Symbol.asyncDispose]();
		},
	};
}

function targetOf(connections: Connections, locked: LockedTables): CopyTarget {
	const { session } = locked;
	return {
		...transferOf(connections, locked),
		async begin(source) {
			const described = describeContents(source);
			const { counts, updates, events } = await contentsOf(locked);
			const unfinished = await sourceOfUnfinished(session);
			const isUnnumbered = updates.newest === 0n && events.newest === 0n;
			const isEmpty = isUnnumbered && Object.values(counts).every((count) => count === 0);
			if (unfinished === undefined ? !isEmpty : !isUnnumbered)
				throw new Error("the target already holds updates or events; its schema conversation_updates must be empty");
			if (unfinished !== undefined && unfinished !== described)
				throw new Error(
					"the target holds part of a copy of another source, or the source has changed since: drop the schema conversation_updates of the target to start again",
				);
			if (unfinished !== undefined) return;
			// In a transaction of its own: the one that locks the tables is not committed before the copy is complete.
			await connections.transaction(async (transaction) => {
				const text = "INSERT INTO conversation_updates.unfinished_copy VALUES (1, $1)";
				await transaction.commit({ text, values: [described] });
			});
		},
		last: (table) => connections.read((session) => lastKey(session, table)),
		async write(table, rows) {
			const queries = insertQueries(table, rows);
			await connections.transaction((transaction) => transaction.commit(...queries));
		},
		async finish(source) {
			await writeRanges(session, source);
			requireContents(await contentsOf(locked), source);
			await session.query({ text: "DELETE FROM conversation_updates.unfinished_copy" });
			await locked.release(true);
		},
	};
}

/** Reads the contents in the transaction that locks the tables, so that this fails if the lock was lost. */
async function contentsOf({ session }: LockedTables): Promise<Contents> {
	return {
		counts: await countRows(session),
		updates: await readRange(session, "updates", {}),
		events: await readRange(session, "events", {}),
		retentionTime: await readRetentionTime(session),
	};
}

async function writeRanges(session: Session, { updates, events, retentionTime }: Contents): Promise<void> {
	const removals = Object.entries({ updates, events }).map(([log, { prunedThrough, lastRemoval }]) => ({
		text: "UPDATE conversation_updates.removals SET pruned_through = $1, last_removal = $2 WHERE log = $3",
		values: [prunedThrough, lastRemoval, log],
	}));
	await session.query(
		...removals,
		{
			text: "UPDATE conversation_updates.positions SET newest_update = $1, newest_event = $2",
			values: [updates.newest, events.newest],
		},
		saveRetentionTime(retentionTime),
	);
}
