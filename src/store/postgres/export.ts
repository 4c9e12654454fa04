import type { ThreadLogger } from "../../threads/worker-thread.ts";
import type { PostgresSettings } from "../database.ts";
import { BEGINNING, type ExportSource, type ImportTarget, type Ranges, requireContents } from "../export/databases.ts";
import { DatabaseRows } from "../export/rows.ts";
import { gapsFrom } from "../gaps.ts";
import { unpackRecord } from "../record-column.ts";
import { packedColumnsFrom } from "../rows.ts";
import { baselineArray, baselineColumns, baselineFrom, ledgerColumns } from "../usage-baseline.ts";
import { bigint, type Row, text } from "../values.ts";
import { adoptEarlierUsage } from "../views/usage.ts";
import { followViews } from "../views/views.ts";
import { type Connections, openConnections } from "./connections.ts";
import { writeGapsQueries } from "./gaps.ts";
import { type HeldTransaction, holdTransaction } from "./held-transaction.ts";
import { readRange, readRetentionTime, saveRetentionTime } from "./log.ts";
import { migrate, schemaVersion } from "./migrate.ts";
import { decoded } from "./rows.ts";
import { MIGRATIONS } from "./schema.ts";
import { postgresSession } from "./session.ts";
import { encodeKey } from "./stored-text.ts";
import type { Session } from "./transaction.ts";
import { manifestOfUnfinished, requireFinished } from "./unfinished.ts";
import { listUpdates } from "./updates.ts";

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
		if (version < MIGRATIONS.length) throw new Error("an earlier release wrote the database; run migrate");
		await connections.read(requireFinished);
		const held = await holdTransaction(connections, { snapshot: true });
		const { session } = held;
		return {
			ranges: () => readRanges(session),
			counts: (after) => rowsOf(session).counts(after),
			rows: (kind, after) => rowsOf(session).read(kind, after),
			listUpdates: (query) => listUpdates(session, query),
			[Symbol.asyncDispose]: () => close(connections, held),
		};
	});
}

/** Tables of which every append and every removal writes at least one. */
const WRITTEN_TABLES = "conversation_updates.positions, conversation_updates.removals";

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
	return {
		async begin(manifest) {
			const begun = await manifestOfUnfinished(session);
			if (begun === manifest) return;
			if (begun !== undefined)
				throw new Error(
					"the database holds part of an import of another export: drop the schema conversation_updates to start again",
				);
			const { updates, events } = await readRanges(session);
			const counts = Object.values(await rowsOf(session).counts(BEGINNING));
			if (updates.newest > 0n || events.newest > 0n || counts.some((count) => count > 0))
				throw new Error("the database already holds data; its schema conversation_updates must be empty");
			// In a transaction of its own: the one that locks the tables is not committed before the import is finished.
			await connections.transaction(async (transaction) => {
				const text = "INSERT INTO conversation_updates.unfinished_import VALUES (1, $1)";
				await transaction.commit({ text, values: [manifest] });
			});
		},
		last: (kind) => connections.read((reading) => rowsOf(reading).last(kind)),
		rows: (kind, after) => connections.read((reading) => rowsOf(reading).read(kind, after)),
		write: (kind, rows) => connections.transaction((transaction) => rowsOf(transaction).write(kind, rows)),
		async finish(ranges, counts) {
			await writeRanges(session, ranges);
			const own = postgresSession(session);
			requireContents([await readRanges(session), await rowsOf(session).counts(BEGINNING)], [ranges, counts]);
			await adoptEarlierUsage(own);
			while (await followViews(own));
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

async function readRanges(session: Session): Promise<Ranges> {
	return {
		updates: await readRange(session, "updates", {}),
		events: await readRange(session, "events", {}),
		retentionTime: await readRetentionTime(session),
	};
}

async function writeRanges(session: Session, { updates, events, retentionTime }: Ranges): Promise<void> {
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

function rowsOf(session: Session): DatabaseRows {
	const own = postgresSession(session);
	return new DatabaseRows(own, {
		usage: {
			table: "(SELECT * FROM conversation_updates.usage_conversations WHERE is_kept) k",
			columns: `k.*, k.id AS conversation_id, (
				SELECT coalesce(json_agg(json_build_array(${baselineArray((column) => `${column}::text`)})), '[]')::text
				FROM conversation_updates.usage_ledger l WHERE l.conversation = k.id
			) AS rows`,
			key: "k.id",
			read: (row) => baselineFrom(row, decoded),
			async write(baselines) {
				await own.insert(
					"usage_conversations",
					baselines.map((one) => ({ id: one.conversationId, ...baselineColumns(one) })),
				);
				await own.insert(
					"usage_ledger",
					baselines.flatMap(({ conversationId: conversation, rows }) =>
						rows.map((row) => ({ conversation, ...ledgerColumns(row) })),
					),
				);
			},
		},
		gaps: {
			table: `(
				SELECT conversation_id, json_agg(json_build_array(kind, missing, after_event_id, since::text))::text AS gaps
				FROM conversation_updates.gaps GROUP BY conversation_id
			) g`,
			columns: "*",
			key: "conversation_id",
			read: (row) => ({ conversationId: text(row.conversation_id), gaps: gapsFrom(row.gaps, decoded) }),
			async write(rows) {
				const opened = rows.map(({ conversationId, gaps }) => [conversationId, { closed: [], opened: gaps }] as const);
				await session.query(...writeGapsQueries(new Map(opened)));
			},
		},
		eventIdOf,
	});
}

/**
 * Returns the id of an event. The column has only the beginning of a long id; the event's text has the whole id.
 *
 * @throws Error when the text of an event with a long id is damaged, or has another id
 */
function eventIdOf(row: Row): string {
	const key = text(row.event_id);
	const id = decoded(key);
	if (encodeKey(id) === key) return id;
	const event: unknown = JSON.parse(new TextDecoder().decode(unpackRecord(packedColumnsFrom(row, "text"))));
	const whole = typeof event === "object" && event !== null && "id" in event ? event.id : undefined;
	if (typeof whole !== "string" || encodeKey(whole) !== key)
		throw new Error(`the id of event ${bigint(row.sequence)} cannot be determined`);
	return whole;
}
