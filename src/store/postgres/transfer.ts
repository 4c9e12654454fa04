import type { ThreadLog } from "../../threads/worker-thread.ts";
import {
	type Contents,
	type CopyTarget,
	describeContents,
	type RowKey,
	requireContents,
	type TransferDatabase,
	type TransferRows,
	type TransferTable,
} from "../transfer.ts";
import { type Connections, openConnections } from "./connections.ts";
import type { PostgresSettings } from "./dial.ts";
import { listEvents } from "./events.ts";
import { listConversations } from "./list-conversations.ts";
import { type LockedTables, lockTables } from "./locked-tables.ts";
import { keepClock, readClock, readRange } from "./log.ts";
import { migrate, schemaVersion } from "./migrate.ts";
import type { Session } from "./transaction.ts";
import { countRows, insertQueries, lastKey, transferRows } from "./transfer-rows.ts";
import { requireFinished, sourceOfUnfinished } from "./unfinished.ts";
import { listUpdates } from "./updates.ts";

/**
 * Opens a database to be copied, and brings its schema to this release's version. What appends to it or removes from it
 * waits as long as it is open, and fails in a service after POSTGRES_LOCK_TIMEOUT.
 *
 * @throws Error when the database has no tables of this service
 * @throws ServiceError `unavailable` when it cannot be opened, or something else keeps it from being locked
 */
export async function openPostgresSource(settings: PostgresSettings, log: ThreadLog): Promise<TransferDatabase> {
	const connections = await openConnections(settings, log);
	return await opened(connections, async () => {
		if ((await connections.read(schemaVersion)) === 0)
			throw new Error(`the database ${settings.database} has no tables of this service`);
		await migrate(connections);
		await connections.read(requireFinished);
		return new PostgresTransfer(connections, await lockTables(connections, settings.lockTimeout));
	});
}

/**
 * Opens a database that a copy is to be made in, and creates its tables if they are missing. Until the copy is complete,
 * no service can start with it, and one that runs cannot write.
 *
 * @throws ServiceError `unavailable` when it cannot be opened, or something else keeps it from being locked
 */
export async function openPostgresTarget(settings: PostgresSettings, log: ThreadLog): Promise<CopyTarget> {
	const connections = await openConnections(settings, log);
	return await opened(connections, async () => {
		await migrate(connections);
		return new PostgresTarget(connections, await lockTables(connections, settings.lockTimeout));
	});
}

async function opened<Opened>(connections: Connections, open: () => Promise<Opened>): Promise<Opened> {
	try {
		return await open();
	} catch (error) {
		await connections[Symbol.asyncDispose]();
		throw error;
	}
}

class PostgresTransfer implements TransferDatabase {
	readonly reads: TransferDatabase["reads"] = {
		updates: { list: (query) => this.connections.read((session) => listUpdates(session, query)) },
		events: { list: (query) => this.connections.read((session) => listEvents(session, query)) },
		listConversations: (query) => this.connections.read((session) => listConversations(session, query)),
	};
	protected readonly connections: Connections;
	protected readonly locked: LockedTables;
	#isReleased = false;

	constructor(connections: Connections, locked: LockedTables) {
		this.connections = connections;
		this.locked = locked;
	}

	/** In the transaction that keeps others from writing, so that this fails if it was lost. */
	async contents(): Promise<Contents> {
		const session = this.locked.session;
		return {
			counts: await countRows(session),
			updates: await readRange(session, "updates", {}),
			events: await readRange(session, "events", {}),
			clock: await readClock(session),
		};
	}

	rows<Table extends TransferTable>(table: Table, after: RowKey | undefined): Promise<readonly TransferRows[Table][]> {
		return this.connections.read((session) => transferRows(session, table, after));
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.release(false);
		await this.connections[Symbol.asyncDispose]();
	}

	/** Lets others write. */
	protected async release(commits: boolean): Promise<void> {
		if (this.#isReleased) return;
		this.#isReleased = true;
		await this.locked.release(commits);
	}
}

class PostgresTarget extends PostgresTransfer implements CopyTarget {
	async begin(source: Contents): Promise<void> {
		const described = describeContents(source);
		const { counts, updates, events } = await this.contents();
		const unfinished = await sourceOfUnfinished(this.locked.session);
		const isUnnumbered = updates.newest === 0n && events.newest === 0n;
		const isEmpty = isUnnumbered && Object.values(counts).every((count) => count === 0);
		if (unfinished === undefined ? !isEmpty : !isUnnumbered)
			throw new Error("the target holds updates or events already; its schema conversation_updates must be empty");
		if (unfinished !== undefined && unfinished !== described)
			throw new Error(
				"the target holds part of a copy of something else, or the source has changed since: drop its schema conversation_updates to begin anew",
			);
		if (unfinished !== undefined) return;
		// Beside the transaction that keeps others away, which is not committed before the end.
		await this.connections.transaction(async (transaction) => {
			const text = "INSERT INTO conversation_updates.unfinished_copy VALUES (1, $1)";
			await transaction.commit({ text, values: [described] });
		});
	}

	last(table: TransferTable): Promise<RowKey | undefined> {
		return this.connections.read((session) => lastKey(session, table));
	}

	async write<Table extends TransferTable>(table: Table, rows: readonly TransferRows[Table][]): Promise<void> {
		const queries = insertQueries(table, rows);
		await this.connections.transaction((transaction) => transaction.commit(...queries));
	}

	async finish(source: Contents): Promise<void> {
		const { session } = this.locked;
		await writeRanges(session, source);
		requireContents(await this.contents(), source);
		await session.query({ text: "DELETE FROM conversation_updates.unfinished_copy" });
		await this.release(true);
	}
}

async function writeRanges(session: Session, { updates, events, clock }: Contents): Promise<void> {
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
		keepClock(clock),
	);
}
