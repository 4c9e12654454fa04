import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { accessKeyColumns, accessKeyFrom } from "../access-keys.ts";
import { auditColumns, auditFrom } from "../audit.ts";
import { erasureColumns, erasureFrom } from "../erasure.ts";
import { gapColumns, gapsFrom } from "../gaps.ts";
import { listUpdates, readRange, writeRange } from "../read-logs.ts";
import { unpackRecord } from "../record-column.ts";
import { refusedColumns, refusedRowFrom } from "../refused-posts.ts";
import { getRetentionTime, saveRetentionTime } from "../remove.ts";
import {
	AMOUNT_COLUMNS,
	activityColumns,
	activityFrom,
	amountsFrom,
	eventColumns,
	eventRowFrom,
	headColumns,
	ledgerColumns,
	ownershipColumns,
	ownershipFrom,
	packedColumnsFrom,
	prunedFrom,
	stateFrom,
	updateColumns,
	updateRowFrom,
} from "../rows.ts";
import { senderColumns, senderFrom } from "../senders.ts";
import type { LogTable } from "../sequence-log.ts";
import type { Columns, Session } from "../session.ts";
import {
	type After,
	BEGINNING,
	type Counts,
	childrenOf,
	countsBy,
	type ExportSource,
	PAGE_BYTES,
	PAGE_ROWS,
	type PrunedRow,
	type Ranges,
	type RowKey,
	type RowKind,
	requireContents,
	rowKinds,
	SENDER_KEY,
	SETTING_TABLES,
	type SettingKind,
	type SettingRow,
	type StoredRows,
	type UsageBaseline,
} from "../stored-rows.ts";
import { tableOf } from "../tables.ts";
import { bigint, blob, integer, nullable, type Row, text } from "../values.ts";

/** How the rows of a kind are read and written. */
interface RowsOf<Stored> {
	/** The table, as FROM names it. */
	readonly table: string;
	/** The table with others that have further columns. Default: the table alone. */
	readonly from?: string;
	/** SQL for which rows of these are read. Default: all. */
	readonly where?: string;
	readonly columns: string;
	readonly key: string;
	/** SQL for the size of a row in bytes, which counts towards the size of a page. */
	readonly bytes?: string;
	readonly read: (row: Row) => Stored;
	/** @param rows at least one */
	readonly write: (rows: readonly Stored[]) => Promise<void>;
}

/** Reads the sequences of both logs and the time of retention. */
export async function readRanges(session: Session): Promise<Ranges> {
	return {
		updates: await readRange(session, { log: "updates" }),
		events: await readRange(session, { log: "events" }),
		retentionTime: await getRetentionTime(session),
	};
}

/** Returns the reads of a source of which the session sees one state. */
export function sourceOf(session: Session): Omit<ExportSource, typeof Symbol.asyncDispose> {
	const rows = new DatabaseRows(session);
	return {
		ranges: () => readRanges(session),
		counts: (after) => rows.counts(after),
		rows: (kind, after) => rows.read(kind, after),
		listUpdates: (query) => listUpdates(session, query),
	};
}

/** Stores the ranges of a complete import. @throws Error as `ImportTarget.finish` */
export async function finishRows(session: Session, ranges: Ranges, counts: Counts): Promise<void> {
	for (const log of ["updates", "events"] as const) await writeRange(session, log, ranges[log]);
	await saveRetentionTime(session, ranges.retentionTime);
	requireContents([await readRanges(session), await new DatabaseRows(session).counts(BEGINNING)], [ranges, counts]);
}

/** The rows of a database. */
export class DatabaseRows {
	readonly #all: Session["all"];
	readonly #kinds: { readonly [Kind in RowKind]: RowsOf<StoredRows[Kind]> };

	constructor(session: Session) {
		this.#all = session.all;
		this.#kinds = kindsOf(session);
	}

	/** Returns a page of rows: see `ExportSource.rows`. */
	async read<Kind extends RowKind>(kind: Kind, after: RowKey | undefined): Promise<StoredRows[Kind][]> {
		const {
			table,
			from = table,
			where = "true",
			columns,
			key,
			bytes,
			read,
		}: RowsOf<StoredRows[Kind]> = this.#kinds[kind];
		const last = bytes === undefined ? undefined : await this.#lastOfPage(kind, after);
		const tests = [
			where,
			...(after === undefined ? [] : [`${key} > ?`]),
			...(last === undefined ? [] : [`${key} <= ?`]),
		].join(" AND ");
		const values = [after, last].filter((value) => value !== undefined);
		const rows = await this.#all(
			`SELECT ${columns} FROM ${from} WHERE ${tests} ORDER BY ${key} LIMIT ${PAGE_ROWS}`,
			...values,
		);
		return rows.map(read);
	}

	/** Returns the key of the last row that a page has room for. */
	async #lastOfPage(kind: RowKind, after: RowKey | undefined): Promise<RowKey | undefined> {
		const { table, key, bytes } = this.#kinds[kind];
		const rows = await this.#all(
			`SELECT ${key} AS key, ${bytes} AS bytes FROM ${table} ${after === undefined ? "" : `WHERE ${key} > ?`}
			ORDER BY ${key} LIMIT ${PAGE_ROWS}`,
			...(after === undefined ? [] : [after]),
		);
		let sum = 0;
		const beyond = rows.findIndex((row) => {
			sum += integer(row.bytes);
			return sum > PAGE_BYTES;
		});
		return keyFrom(rows.at(beyond === 0 ? 0 : beyond - 1) ?? rows.at(-1));
	}

	/** Writes rows. The caller has begun a transaction. */
	async write<Kind extends RowKind>(kind: Kind, rows: readonly StoredRows[Kind][]): Promise<void> {
		const { write }: RowsOf<StoredRows[Kind]> = this.#kinds[kind];
		await write(rows);
	}

	/** Counts the rows of each kind; of the updates, erasures and events only those after a sequence. */
	async counts(after: After): Promise<Counts> {
		const counts = rowKinds.map((kind) => {
			const { table, key } = this.#kinds[kind];
			const from = kind === "event" ? after.event : kind === "update" || kind === "erasure" ? after.update : undefined;
			return `(SELECT count(*) FROM ${table} ${from === undefined ? "" : `WHERE ${key} > ${from}`}) AS "${kind}"`;
		});
		const [row = {}] = await this.#all(`SELECT ${counts.join()}`);
		return countsBy((kind) => integer(row[kind]));
	}
}

function keyFrom(row: Row | undefined): RowKey | undefined {
	if (row === undefined) return undefined;
	return typeof row.key === "string" ? row.key : bigint(row.key);
}

function kindsOf(session: Session): { readonly [Kind in RowKind]: RowsOf<StoredRows[Kind]> } {
	const { readText, insert, insertEntries } = session;
	const { schema, entries, isCurrent, engine, usageId, jsonRows } = session.dialect;
	const children = tableOf(engine, "children");
	/** @param changed SQL for the column `position` */
	const setting = (kind: SettingKind, changed = "s.position"): RowsOf<SettingRow> => {
		const { name, columns } = tableOf(engine, SETTING_TABLES[kind]);
		return {
			table: `${schema}${name}`,
			from: `${schema}${name} s`,
			columns: Object.keys(columns)
				.map((column) => (column === "position" ? changed : `s.${column}`))
				.join(),
			key: "id",
			read: (row) => ({
				id: text(row.id),
				columns: Object.fromEntries(
					Object.entries(columns).map(([column, type]) => {
						const read = type === "integer" ? bigint : type === "bytes" ? blob : text;
						return [column, nullable<string | bigint | Uint8Array>(read, row[column])];
					}),
				),
			}),
			write: (rows) =>
				insert(
					SETTING_TABLES[kind],
					rows.map((row) => row.columns),
				),
		};
	};
	const pruned = (log: LogTable): RowsOf<PrunedRow> => ({
		table: `(SELECT * FROM ${schema}pruned WHERE log = '${log}') p`,
		columns: "*",
		key: "conversation_id",
		read: (row) => prunedFrom(row, readText),
		write: (rows) =>
			insert(
				"pruned",
				rows.map(({ conversationId, ...row }): Columns => ({ log, conversation_id: conversationId, ...row })),
			),
	});
	return {
		conversation: {
			table: `${schema}heads h`,
			// SQLite reads the tables of a CROSS JOIN in their order.
			from: `${schema}heads h CROSS JOIN ${schema}updates u`,
			where: isCurrent("h"),
			columns: "h.*, u.summary",
			key: "h.conversation_id",
			read: (row) => ({
				conversationId: text(row.conversation_id),
				origin: ownershipFrom(row, readText),
				state: stateFrom(row, readText),
				summary: blob(row.summary),
			}),
			write: (rows) =>
				insert(
					"heads",
					rows.map(({ conversationId, origin, state, summary }) => {
						const { forkedFromConversationId: source, parentConversationId: parent } = fromBinary(
							ConversationSummarySchema,
							summary,
						);
						return { ...headColumns(conversationId, { state, source, parent }), ...ownershipColumns(origin) };
					}),
				),
		},
		activity: {
			table: `${schema}activities`,
			columns: "*",
			key: "conversation_id",
			read: (row) => ({
				conversationId: text(row.conversation_id),
				origin: ownershipFrom(row, readText),
				activity: activityFrom(row, readText),
			}),
			write: (rows) =>
				insert(
					"activities",
					rows.map(({ conversationId, origin, activity }) => ({
						...activityColumns(conversationId, activity),
						...ownershipColumns(origin),
					})),
				),
		},
		update: {
			table: `${schema}updates e`,
			from: entries.updates.from,
			columns: `e.*, ${entries.updates.conversationId} AS conversation_id`,
			key: "e.sequence",
			bytes: "coalesce(e.unpacked_size, octet_length(e.record))",
			read: (row) => updateRowFrom(row, readText),
			async write(rows) {
				await insertEntries("updates", rows.map(updateColumns));
				for (const row of rows)
					for (const child of childrenOf(row)) {
						const stored = session.stored(children, { child }).child ?? child;
						const insert = `INSERT INTO ${schema}children (conversation_id, child) VALUES (?, ?) ON CONFLICT DO NOTHING`;
						await session.all(insert, row.conversationId, stored);
					}
			},
		},
		event: {
			table: `${schema}events e`,
			from: entries.events.from,
			columns: `e.*, ${entries.events.conversationId} AS conversation_id`,
			key: "e.sequence",
			bytes: "coalesce(e.unpacked_size, octet_length(e.text))",
			read: (row) => eventRowFrom(row, eventIdOf(session, row), readText),
			write: (rows) => insertEntries("events", rows.map(eventColumns)),
		},
		usage: {
			table: `(SELECT * FROM ${schema}usage_conversations WHERE is_kept = TRUE) k`,
			columns: `k.*, k.${usageId} AS conversation_id, (
				SELECT ${jsonRows(baselineArray((column) => `CAST(${column} AS text)`))}
				FROM ${schema}usage_ledger l WHERE l.conversation = k.id
			) AS rows`,
			key: `k.${usageId}`,
			read: (row) => baselineFrom(row, readText),
			async write(baselines) {
				const ids = baselines.map(({ conversationId }) => conversationId);
				await insert(
					"usage_conversations",
					baselines.map((one) => ({ [usageId]: one.conversationId, ...baselineColumns(one) })),
				);
				const found = await session.all(
					`SELECT id, ${usageId} AS conversation_id FROM ${schema}usage_conversations WHERE ${session.isIn(usageId)}`,
					ids,
				);
				const references = new Map(found.map((row) => [text(row.conversation_id), row.id]));
				await insert(
					"usage_ledger",
					baselines.flatMap(({ conversationId, rows }) => {
						const reference = references.get(conversationId);
						const conversation = typeof reference === "bigint" ? reference : text(reference);
						return rows.map((row): Columns => ({ conversation, ...ledgerColumns(row) }));
					}),
				);
			},
		},
		prunedUpdates: pruned("updates"),
		prunedEvents: pruned("events"),
		gaps: {
			table: `(
				SELECT conversation_id, ${jsonRows("kind, missing, after_event_id, CAST(since AS text)")} AS gaps
				FROM ${schema}gaps GROUP BY conversation_id
			) g`,
			columns: "*",
			key: "conversation_id",
			read: (row) => ({ conversationId: text(row.conversation_id), gaps: gapsFrom(row.gaps, readText) }),
			write: (rows) =>
				insert(
					"gaps",
					rows.flatMap(({ conversationId, gaps }) => gaps.map((gap) => gapColumns({ ...gap, conversationId }))),
				),
		},
		accessKey: {
			table: `${schema}access_keys`,
			columns: "*",
			key: "name",
			read: accessKeyFrom,
			write: (rows) => insert("access_keys", rows.map(accessKeyColumns)),
		},
		sender: {
			table: `${schema}senders`,
			columns: "*",
			key: SENDER_KEY,
			read: senderFrom,
			write: (rows) => insert("senders", rows.map(senderColumns)),
		},
		refusedPost: {
			table: `${schema}refused_posts`,
			columns: "*",
			key: "id",
			bytes: "bytes",
			read: refusedRowFrom,
			write: (rows) => insert("refused_posts", rows.map(refusedColumns)),
		},
		erasure: {
			table: `${schema}erasures`,
			columns: "*",
			key: "sequence",
			read: (row) => erasureFrom(row, readText),
			write: (rows) => insert("erasures", rows.map(erasureColumns)),
		},
		audit: {
			table: `${schema}audit`,
			columns: "*",
			key: "number",
			read: auditFrom,
			write: (rows) => insert("audit", rows.map(auditColumns)),
		},
		// What waits is told again from the position.
		endpoint: setting(
			"endpoint",
			`coalesce((SELECT min(d.sequence) - 1 FROM ${schema}deliveries d
				WHERE d.endpoint_id = s.id AND d.state = 'waiting' AND d.sequence <= s.position), s.position) AS position`,
		),
		budget: setting("budget"),
		notice: setting("notice"),
	};
}

/**
 * Returns the id of an event. A column of type `key` may have only the beginning of a long id; the event's text has the whole
 * id.
 *
 * @throws Error when the text of an event with a long id is damaged, or has another id
 */
function eventIdOf({ readText, storeKey }: Session, row: Row): string {
	const id = readText(row.event_id);
	if (storeKey(id) === row.event_id) return id;
	const event: unknown = JSON.parse(new TextDecoder().decode(unpackRecord(packedColumnsFrom(row, "text"))));
	const whole = typeof event === "object" && event !== null && "id" in event ? event.id : undefined;
	if (typeof whole !== "string" || storeKey(whole) !== row.event_id)
		throw new Error(`the id of event ${bigint(row.sequence)} cannot be determined`);
	return whole;
}

/** SQL for the columns of a row `l` of usage_ledger as {@link baselineFrom} reads them; `text` converts to a text. */
function baselineArray(text: (column: string) => string): string {
	return ["quarter", "model", "usage_id", "agent_kind", ...AMOUNT_COLUMNS]
		.map((name) => (AMOUNT_KEYS.has(name) ? text(`l.${name}`) : `l.${name}`))
		.join();
}

const AMOUNT_KEYS = new Set<string>(["quarter", ...AMOUNT_COLUMNS]);

/**
 * Reads a baseline from the columns of usage_conversations, and `rows`: JSON text of an array of arrays with the columns of
 * {@link baselineArray}.
 */
function baselineFrom(row: Row, decode: (value: unknown) => string): UsageBaseline {
	const rows: unknown = JSON.parse(text(row.rows));
	if (!Array.isArray(rows)) throw new TypeError("the column does not hold a list of rows");
	const keyed = rows.map(([quarter, model, usageId, agentKind, ...amounts]: readonly unknown[]) => {
		const columns = AMOUNT_COLUMNS.map((name, n) => [name, BigInt(text(amounts[n]))]);
		const read = {
			...{
				quarter: BigInt(text(quarter)),
				model: decode(model),
				usageId: decode(usageId),
				agentKind: decode(agentKind),
			},
			...amountsFrom(Object.fromEntries(columns)),
		};
		return { read, key: JSON.stringify([Number(read.quarter), read.model, read.usageId, read.agentKind]) };
	});
	return {
		conversationId: text(row.conversation_id),
		sender: decode(row.sender),
		owner: decode(row.owner),
		source: nullable(text, row.source_id),
		lifeBeganAt: nullable(bigint, row.life_began_at),
		ledger: decode(row.ledger),
		rows: keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ read }) => read),
	};
}

/** Returns the columns of usage_conversations of a baseline, without its ids. */
function baselineColumns({ sender, owner, source, lifeBeganAt, ledger }: UsageBaseline) {
	return { sender, owner, source_id: source ?? null, life_began_at: lifeBeganAt ?? null, is_kept: true, ledger };
}
