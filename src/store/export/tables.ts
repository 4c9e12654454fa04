import { timesOf, widenTimes } from "../append-group.ts";
import { readRange, withinSize } from "../read-logs.ts";
import { packRecordAsync, packTextAsync, unpackRecord } from "../record-column.ts";
import { columnValue, packedColumnsFrom } from "../rows.ts";
import type { SequenceRange } from "../sequence-log.ts";
import type { Columns, Session, Value } from "../session.ts";
import { type Table, type TableName, tableOf } from "../tables.ts";
import { bigint, blob, boolean, integer, type Row } from "../values.ts";

/**
 * The tables that an export has, in the order in which they are imported, and what is special about them. All others follow
 * from these, or are made by each database itself.
 */
const EXPORTED = {
	heads: {},
	activities: {},
	updates: { packed: "record", size: "coalesce(unpacked_size, octet_length(record))" },
	events: { packed: "text", size: "coalesce(unpacked_size, octet_length(text))" },
	children: {},
	// What is kept when the view is reset.
	usage_conversations: { where: "is_kept = TRUE" },
	usage_ledger: { ofUsage: true },
	pruned: {},
	gaps: {},
	scores: {},
	access_keys: {},
	senders: {},
	refused_posts: { size: "bytes" },
	erasures: {},
	audit: {},
	endpoints: {
		// What waits is told again from the position.
		position: (schema: string) => `coalesce((SELECT min(d.sequence) - 1 FROM ${schema}deliveries d
			WHERE d.endpoint_id = t.id AND d.state = 'waiting' AND d.sequence <= t.position), t.position)`,
	},
	budgets: {},
	notices: {},
} as const satisfies Partial<Record<TableName, Special>>;

interface Special {
	/** Column of packed bytes, which a line has unpacked. */
	readonly packed?: "record" | "text";
	/** SQL for the bytes of a row, of a table with large ones. */
	readonly size?: string;
	/** SQL for which rows are exported. Default: all. */
	readonly where?: string;
	/** Whether only the rows of conversations are exported whose usage is kept. */
	readonly ofUsage?: true;
	/** Returns SQL for the column `position`. */
	readonly position?: (schema: string) => string;
}

export type ExportedTable = keyof typeof EXPORTED;
export const exportedTables: readonly ExportedTable[] = Object.keys(EXPORTED).filter(isExported);

function isExported(name: string): name is ExportedTable {
	return name in EXPORTED;
}

/** Columns that a line does not have, because they follow from the unpacked bytes. */
const OF_PACKED: readonly string[] = ["unpacked_size", "checksum"];

/** The columns of a table that its lines have. */
export function exportedColumns(name: ExportedTable): readonly string[] {
	const { packed }: Special = EXPORTED[name];
	return Object.keys(tableOf(name).columns).filter((column) => packed === undefined || !OF_PACKED.includes(column));
}

/** Maximum number of rows that are read and written at once. */
export const PAGE_ROWS = 1_000;
/** Maximum number of bytes of the rows of a page. A single row may exceed it. */
export const PAGE_BYTES = 4 * 2 ** 20;

/** How many rows of each table there are. */
export type Counts = Readonly<Record<ExportedTable, number>>;

/** The sequences of both logs. */
export interface Ranges {
	readonly updates: SequenceRange;
	readonly events: SequenceRange;
}

/** Reads the ranges of a database. */
export async function readRanges(session: Session): Promise<Ranges> {
	return {
		updates: await readRange(session, { log: "updates" }),
		events: await readRange(session, { log: "events" }),
	};
}

/** Returns a count for each table. */
export function countsBy(count: (table: ExportedTable) => number): Counts {
	return Object.fromEntries(exportedTables.map((table) => [table, count(table)])) as Counts;
}

/** Counts the rows of a database that an export has. */
export async function countRows({ all, dialect: { schema } }: Session): Promise<Counts> {
	const counts = exportedTables.map(
		(table) => `(SELECT count(*) FROM ${schema}${table} t WHERE ${whereOf(schema, table)}) AS ${table}`,
	);
	const [row = {}] = await all(`SELECT ${counts.join()}`);
	return countsBy((table) => integer(row[table]));
}

function whereOf(schema: string, table: ExportedTable): string {
	const { where = "TRUE", ofUsage }: Special = EXPORTED[table];
	if (ofUsage !== true) return where;
	return `t.conversation_id IN (SELECT k.conversation_id FROM ${schema}usage_conversations k WHERE k.is_kept = TRUE)`;
}

/** Returns the rows of a table in the order of their keys, in pages. Bytes are unpacked. */
export async function* pagesOf(
	{ all, dialect: { schema, join } }: Session,
	table: ExportedTable,
): AsyncGenerator<readonly Columns[]> {
	const { size = "0", packed, position }: Special = EXPORTED[table];
	const { columns, key, isSequenced } = tableOf(table);
	const order = isSequenced === true ? ["sequence"] : key;
	const names = Object.keys(columns).map((name) =>
		name === "position" && position !== undefined ? `${position(schema)} AS position` : `t.${name}`,
	);
	let after: readonly Value[] | undefined;
	for (;;) {
		const isAfter = after === undefined ? "TRUE" : `(${order.join()}) > (${order.map(() => "?").join()})`;
		const page = `SELECT ${key.join()}, CAST(${size} AS bigint) AS size FROM ${schema}${table} t
			WHERE ${whereOf(schema, table)} AND ${isAfter} ORDER BY ${order.join()} LIMIT ${PAGE_ROWS}`;
		const rows = await all(
			`SELECT ${names.join()} FROM (${withinSize(page, String(PAGE_BYTES), order.join())}) p
			${join} ${schema}${table} t ON ${key.map((name) => `t.${name} = p.${name}`).join(" AND ")}
			ORDER BY ${order.map((name) => `t.${name}`).join()}`,
			...(after ?? []),
		);
		const last = rows.at(-1);
		if (last === undefined) return;
		after = order.map((name) => columnValue(last[name]));
		yield rows.map((row) => exportedRow(row, columns, packed));
	}
}

/** @throws Error when the bytes are damaged */
function exportedRow(row: Row, types: Table["columns"], packed: Special["packed"]): Columns {
	const names = Object.keys(row).filter((name) => packed === undefined || !OF_PACKED.includes(name));
	return Object.fromEntries(
		names.map((name): [string, Value] => {
			const value = row[name];
			if (name === packed) return [name, unpackedBytes(row, packed)];
			if (types[name] === "boolean") return [name, boolean(value)];
			return [name, columnValue(value)];
		}),
	);
}

function unpackedBytes(row: Row, packed: "record" | "text"): Uint8Array {
	try {
		return unpackRecord(packedColumnsFrom(row, packed));
	} catch (cause) {
		throw new Error(`the ${packed} with sequence ${bigint(row.sequence)} is damaged`, { cause });
	}
}

/** Writes rows of a table. The caller has begun a transaction. */
export async function writeRows(session: Session, table: ExportedTable, rows: readonly Columns[]): Promise<void> {
	const { packed }: Special = EXPORTED[table];
	const stored = packed === undefined ? rows : await Promise.all(rows.map((row) => packRow(row, packed)));
	await session.insert(table, stored);
	if (table === "events") await session.insert("event_times", timesOf(rows), widenTimes(session.dialect));
}

async function packRow(row: Columns, packed: "record" | "text"): Promise<Columns> {
	const { record, unpackedSize, checksum } = await (packed === "record" ? packRecordAsync : packTextAsync)(
		blob(row[packed]),
	);
	return { ...row, [packed]: record, unpacked_size: unpackedSize, checksum };
}

/** Stores the ranges of a complete import. Throws unless the database has as many rows as the export. */
export async function finishRows(
	session: Session,
	{ updates, events, counts }: Ranges & { readonly counts: Counts },
): Promise<void> {
	const { schema } = session.dialect;
	await session.all(`UPDATE ${schema}state SET newest_update = ?, newest_event = ?`, updates.newest, events.newest);
	for (const [log, { prunedThrough, lastRemoval }] of Object.entries({ updates, events }))
		await session.all(
			`UPDATE ${schema}removals SET pruned_through = ?, last_removal = ? WHERE log = ?`,
			prunedThrough,
			lastRemoval,
			log,
		);
	const [found, wanted] = [await countRows(session), counts].map((of) => Object.values(of).join());
	if (found !== wanted) throw new Error(`the database holds ${found}, expected ${wanted}`);
}
