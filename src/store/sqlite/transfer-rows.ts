import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { unpackedSizeOf } from "../record-column.ts";
import { activityFrom, type LogTable, prunedFrom, stateFrom, transferEventFrom, transferUpdateFrom } from "../rows.ts";
import {
	type Contents,
	countsOf,
	countsQuery,
	PAGE_BYTES,
	PAGE_ROWS,
	type RowKey,
	type TransferRows,
	type TransferTable,
} from "../transfer.ts";
import { bigint, blob, type Row, text } from "../values.ts";
import { writeActivity } from "./activities.ts";
import { insertEvent } from "./append-events.ts";
import type { Statements } from "./statements.ts";
import { insertConversation, insertUpdate } from "./update-writer.ts";

/** How the rows of one table are read and written. */
interface TransferRowsOf<Copied> {
	/** The table, as FROM names it. */
	readonly table: string;
	/** SQL of the join with a table that has further columns of a row. */
	readonly join?: string;
	readonly columns: string;
	readonly key: string;
	readonly read: (row: Row) => Copied;
	/** Returns the bytes of a row that count towards the size of a page. */
	readonly bytesOf?: (copied: Copied) => number;
	readonly write: (statements: Statements, copied: Copied) => void;
}

const tables: { readonly [Table in TransferTable]: TransferRowsOf<TransferRows[Table]> } = {
	conversations: {
		table: "conversations c",
		join: "CROSS JOIN updates u ON u.sequence = c.sequence",
		columns: "c.*, u.summary",
		key: "c.conversation_id",
		read: (row) => ({
			conversationId: text(row.conversation_id),
			state: stateFrom(row, text),
			summary: blob(row.summary),
		}),
		write(statements, { conversationId, state, summary }) {
			const decoded = fromBinary(ConversationSummarySchema, summary);
			insertConversation(statements, conversationId, state, decoded);
		},
	},
	activities: {
		table: "activities",
		columns: "*",
		key: "conversation_id",
		read: (row) => ({ conversationId: text(row.conversation_id), activity: activityFrom(row, text) }),
		write(statements, { conversationId, activity }) {
			writeActivity(statements, conversationId, undefined, activity);
		},
	},
	updates: {
		table: "updates u",
		join: "CROSS JOIN conversations c ON c.id = u.conversation",
		columns: "c.conversation_id, u.*",
		key: "u.sequence",
		read: transferUpdateFrom,
		bytesOf: ({ record }) => unpackedSizeOf(record),
		write(statements, update) {
			const find = statements.prepare("SELECT id FROM conversations WHERE conversation_id = ?");
			const row = find.get(update.conversationId);
			insertUpdate(statements, bigint(row?.id), update);
		},
	},
	events: {
		table: "events e",
		join: "CROSS JOIN activities a ON a.id = e.activity",
		columns: "a.conversation_id, e.*",
		key: "e.sequence",
		read: (row) => transferEventFrom(row, text(row.event_id), text),
		bytesOf: (event) => unpackedSizeOf(event.text),
		write(statements, event) {
			const find = statements.prepare("SELECT id FROM activities WHERE conversation_id = ?");
			insertEvent(statements, bigint(find.get(event.conversationId)?.id), event);
		},
	},
	prunedUpdates: prunedOf("updates"),
	prunedEvents: prunedOf("events"),
};

function prunedOf(log: LogTable): TransferRowsOf<TransferRows["prunedUpdates"]> {
	return {
		table: `(SELECT * FROM pruned WHERE log = '${log}')`,
		columns: "*",
		key: "conversation_id",
		read: prunedFrom,
		write(statements, { conversationId, through, removal }) {
			statements.prepare("INSERT INTO pruned VALUES (?, ?, ?, ?)").run(log, conversationId, through, removal);
		},
	};
}

/** Returns a page of rows: see `TransferDatabase.rows`. */
export function transferRows<Table extends TransferTable>(
	statements: Statements,
	table: Table,
	after: RowKey | undefined,
): TransferRows[Table][] {
	const { table: from, join = "", columns, key, read, bytesOf }: TransferRowsOf<TransferRows[Table]> = tables[table];
	const rows = statements
		.prepare(
			`SELECT ${columns} FROM ${from} ${join} ${after === undefined ? "" : `WHERE ${key} > ?`} ORDER BY ${key} LIMIT ${PAGE_ROWS}`,
		)
		.iterate(...(after === undefined ? [] : [after]));
	const page: TransferRows[Table][] = [];
	let bytes = 0;
	for (const row of rows) {
		const copied = read(row);
		bytes += bytesOf?.(copied) ?? 0;
		if (page.length > 0 && bytes > PAGE_BYTES) break;
		page.push(copied);
	}
	return page;
}

/** Inserts rows. The caller has begun a transaction. */
export function insertRows<Table extends TransferTable>(
	statements: Statements,
	table: Table,
	rows: readonly TransferRows[Table][],
): void {
	const { write }: TransferRowsOf<TransferRows[Table]> = tables[table];
	for (const row of rows) write(statements, row);
}

export function countRows(statements: Statements): Contents["counts"] {
	return countsOf(statements.prepare(countsQuery(tables)).get() ?? {});
}

/** Returns the key of the last row of a table; undefined when the table is empty. */
export function lastKey(statements: Statements, table: TransferTable): RowKey | undefined {
	const { table: from, key } = tables[table];
	const row = statements.prepare(`SELECT ${key} AS key FROM ${from} ORDER BY ${key} DESC LIMIT 1`).get();
	if (row === undefined) return undefined;
	return typeof row.key === "string" ? row.key : bigint(row.key);
}
