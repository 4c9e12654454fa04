import type { SQLInputValue } from "node:sqlite";
import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { accessKeyFrom } from "../access-keys.ts";
import { erasureFrom } from "../erasure.ts";
import { type After, type Counts, countsOf, countsQuery, PAGE_BYTES, PAGE_ROWS } from "../export/databases.ts";
import { gapsFrom } from "../gaps.ts";
import { unpackedSizeOf } from "../record-column.ts";
import { refusedRowFrom } from "../refused-posts.ts";
import {
	activityFrom,
	eventRowFrom,
	type LogTable,
	originFrom,
	prunedFrom,
	stateFrom,
	updateRowFrom,
} from "../rows.ts";
import { senderFrom } from "../senders.ts";
import { type PrunedRow, type RowKey, type RowKind, SENDER_KEY, type StoredRows } from "../stored-rows.ts";
import { baselineArray, baselineColumns, baselineFrom, ledgerColumns } from "../usage-baseline.ts";
import { bigint, blob, nullable, type Row, text } from "../values.ts";
import { createAccessKey } from "./access-keys.ts";
import { writeActivity } from "./activities.ts";
import { insertEvent, insertInto, insertUpdate, widenEventTimes } from "./entries.ts";
import { insertErasure } from "./erasures.ts";
import { writeGaps } from "./gaps.ts";
import { insertHead } from "./heads.ts";
import { insertRefusedPost } from "./refused-posts.ts";
import { insertSender } from "./senders.ts";
import type { Statements } from "./statements.ts";

/** How the rows of one table are read and written. */
interface RowsOf<Stored> {
	/** The table, as FROM names it. */
	readonly table: string;
	/** SQL of the join with a table that has further columns of a row. */
	readonly join?: string;
	readonly columns: string;
	readonly key: string;
	readonly read: (row: Row) => Stored;
	/** Returns the bytes of a row that count towards the size of a page. */
	readonly bytesOf?: (stored: Stored) => number;
	readonly write: (statements: Statements, stored: Stored) => void;
}

const tables: { readonly [Kind in RowKind]: RowsOf<StoredRows[Kind]> } = {
	conversation: {
		table: "heads c",
		join: "CROSS JOIN updates u ON u.sequence = c.sequence",
		columns: "c.*, u.summary",
		key: "c.conversation_id",
		read: (row) => ({
			conversationId: text(row.conversation_id),
			origin: originFrom(row, text),
			state: stateFrom(row, text),
			summary: blob(row.summary),
		}),
		write(statements, { conversationId, origin, state, summary }) {
			const { forkedFromConversationId: source, parentConversationId: parent } = fromBinary(
				ConversationSummarySchema,
				summary,
			);
			insertHead(statements, conversationId, { state, source, parent }, origin);
		},
	},
	activity: {
		table: "activities",
		columns: "*",
		key: "conversation_id",
		read: (row) => ({
			conversationId: text(row.conversation_id),
			origin: originFrom(row, text),
			activity: activityFrom(row, text),
		}),
		write(statements, { conversationId, origin, activity }) {
			writeActivity(statements, conversationId, undefined, activity, origin);
		},
	},
	update: {
		table: "updates u",
		join: "CROSS JOIN heads c ON c.id = u.conversation",
		columns: "c.conversation_id, u.*",
		key: "u.sequence",
		read: (row) => updateRowFrom(row, text),
		bytesOf: ({ record }) => unpackedSizeOf(record),
		write(statements, update) {
			const find = statements.prepare("SELECT id, owner FROM heads WHERE conversation_id = ?");
			const row = find.get(update.conversationId);
			insertUpdate(statements, bigint(row?.id), nullable(text, row?.owner ?? null), update);
		},
	},
	event: {
		table: "events e",
		join: "CROSS JOIN activities a ON a.id = e.activity",
		columns: "a.conversation_id, e.*",
		key: "e.sequence",
		read: (row) => eventRowFrom(row, text(row.event_id), text),
		bytesOf: (event) => unpackedSizeOf(event.text),
		write(statements, event) {
			const find = statements.prepare("SELECT id, owner FROM activities WHERE conversation_id = ?");
			const row = find.get(event.conversationId);
			insertEvent(statements, bigint(row?.id), nullable(text, row?.owner ?? null), event);
			widenEventTimes(statements, [event]);
		},
	},
	usage: {
		table: "(SELECT * FROM usage_conversations WHERE is_kept) k",
		columns: `k.*, (
			SELECT json_group_array(json_array(${baselineArray((column) => `CAST(${column} AS TEXT)`)}))
			FROM usage_ledger l WHERE l.conversation = k.id
		) AS rows`,
		key: "k.conversation_id",
		read: (row) => baselineFrom(row, text),
		write(statements, baseline) {
			const insert = (table: string, columns: Readonly<Record<string, SQLInputValue | boolean>>) => {
				const [names, values] = [Object.keys(columns), Object.values(columns)];
				return statements
					.prepare(`INSERT INTO ${table} (${names.join()}) VALUES (${names.map(() => "?").join()})`)
					.run(...values.map((value) => (typeof value === "boolean" ? BigInt(value) : value)));
			};
			const columns = { conversation_id: baseline.conversationId, ...baselineColumns(baseline) };
			const { lastInsertRowid: conversation } = insert("usage_conversations", columns);
			for (const row of baseline.rows) insert("usage_ledger", { conversation, ...ledgerColumns(row) });
		},
	},
	prunedUpdates: prunedOf("updates"),
	prunedEvents: prunedOf("events"),
	gaps: {
		table: `(
			SELECT conversation_id, json_group_array(json_array(kind, missing, after_event_id, CAST(since AS TEXT))) AS gaps
			FROM gaps GROUP BY conversation_id
		)`,
		columns: "*",
		key: "conversation_id",
		read: (row) => ({ conversationId: text(row.conversation_id), gaps: gapsFrom(row.gaps) }),
		write(statements, { conversationId, gaps }) {
			writeGaps(statements, conversationId, { closed: [], opened: gaps });
		},
	},
	accessKey: {
		table: "access_keys",
		columns: "*",
		key: "name",
		read: accessKeyFrom,
		write: createAccessKey,
	},
	sender: { table: "senders", columns: "*", key: SENDER_KEY, read: senderFrom, write: insertSender },
	refusedPost: {
		table: "refused_posts",
		columns: "*",
		key: "id",
		read: refusedRowFrom,
		bytesOf: ({ body }) => body?.byteLength ?? 0,
		write: insertRefusedPost,
	},
	erasure: {
		table: "erasures",
		columns: "*",
		key: "sequence",
		read: (row) => erasureFrom(row, text),
		write: insertErasure,
	},
};

function prunedOf(log: LogTable): RowsOf<PrunedRow> {
	return {
		table: `(SELECT * FROM pruned WHERE log = '${log}')`,
		columns: "*",
		key: "conversation_id",
		read: (row) => prunedFrom(row, text),
		write(statements, { conversationId, through, removal, owner }) {
			insertInto(statements, "pruned", { log, conversation_id: conversationId, through, removal, owner });
		},
	};
}

/** Returns a page of rows: see `ExportSource.rows`. */
export function readRows<Kind extends RowKind>(
	statements: Statements,
	kind: Kind,
	after: RowKey | undefined,
): StoredRows[Kind][] {
	const { table: from, join = "", columns, key, read, bytesOf }: RowsOf<StoredRows[Kind]> = tables[kind];
	const rows = statements
		.prepare(
			`SELECT ${columns} FROM ${from} ${join} ${after === undefined ? "" : `WHERE ${key} > ?`} ORDER BY ${key} LIMIT ${PAGE_ROWS}`,
		)
		.iterate(...(after === undefined ? [] : [after]));
	const page: StoredRows[Kind][] = [];
	let bytes = 0;
	for (const row of rows) {
		const stored = read(row);
		bytes += bytesOf?.(stored) ?? 0;
		if (page.length > 0 && bytes > PAGE_BYTES) break;
		page.push(stored);
	}
	return page;
}

/** Inserts rows. The caller has begun a transaction. */
export function insertRows<Kind extends RowKind>(
	statements: Statements,
	kind: Kind,
	rows: readonly StoredRows[Kind][],
): void {
	const { write }: RowsOf<StoredRows[Kind]> = tables[kind];
	for (const row of rows) write(statements, row);
}

export function countRows(statements: Statements, after: After): Counts {
	return countsOf(statements.prepare(countsQuery(tables, after)).get() ?? {});
}

/** Returns the key of the last row of a table; undefined when the table is empty. */
export function lastKey(statements: Statements, kind: RowKind): RowKey | undefined {
	const { table: from, key } = tables[kind];
	const row = statements.prepare(`SELECT ${key} AS key FROM ${from} ORDER BY ${key} DESC LIMIT 1`).get();
	if (row === undefined) return undefined;
	return typeof row.key === "string" ? row.key : bigint(row.key);
}
