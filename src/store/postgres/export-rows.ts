import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { accessKeyFrom } from "../access-keys.ts";
import { type After, type Counts, countsOf, countsQuery, PAGE_BYTES, PAGE_ROWS } from "../export/databases.ts";
import { gapsFrom } from "../gaps.ts";
import { unpackRecord } from "../record-column.ts";
import { refusedRowFrom } from "../refused-posts.ts";
import {
	eventRowFrom,
	headColumns,
	type LogTable,
	originColumns,
	originFrom,
	packedColumnsFrom,
	prunedFrom,
	updateColumns,
	updateRowFrom,
} from "../rows.ts";
import { senderFrom } from "../senders.ts";
import type { Columns } from "../session.ts";
import { type PrunedRow, type RowKey, type RowKind, SENDER_KEY, type StoredRows } from "../stored-rows.ts";
import { type Table, tableOf } from "../tables.ts";
import { baselineArray, baselineColumns, baselineFrom, ledgerColumns, type UsageBaseline } from "../usage-baseline.ts";
import { bigint, blob, type Row, text } from "../values.ts";
import { insertAccessKey } from "./access-keys.ts";
import { ERASURE_COLUMNS, erasureOf, insertErasure } from "./erasures.ts";
import { writeGapsQueries } from "./gaps.ts";
import { insertRefusedPost } from "./refused-posts.ts";
import { ACTIVITY_COLUMNS, activityOf, decoded, STATE_COLUMNS, stateOf } from "./rows.ts";
import { sendersQuery } from "./senders.ts";
import { Bytes, insertInto, json, rowsFor } from "./sql.ts";
import { encodeKey } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";
import { activitiesQuery, EVENTS, eventRow, HEADS, insertEvents, UPDATES, writeHeads } from "./written-group.ts";

/** How the rows of one kind are read and written. */
interface RowsOf<Stored> {
	/** The table that contains the rows. */
	readonly table: string;
	/** SQL join for the columns of other tables. */
	readonly join?: string;
	readonly columns: string;
	readonly key: string;
	/** SQL for the size of a row in bytes, which counts towards the size of a page. */
	readonly bytes?: string;
	readonly read: (row: Row) => Stored;
	/** Returns the statements that write rows, of which there is at least one. */
	readonly write: (rows: readonly Stored[]) => Query[];
}

const tables: { readonly [Kind in RowKind]: RowsOf<StoredRows[Kind]> } = {
	conversation: {
		table: "conversation_updates.heads c",
		join: "JOIN conversation_updates.updates u ON u.conversation_id = c.conversation_id AND u.sequence = c.sequence",
		columns: `c.conversation_id, ${STATE_COLUMNS}, c.sender, c.owner, u.summary`,
		key: "c.conversation_id",
		read(row) {
			const state = stateOf(row);
			if (state === undefined) throw new Error("a conversation has no sequence");
			return {
				conversationId: text(row.conversation_id),
				origin: originFrom(row, decoded),
				state,
				summary: blob(row.summary),
			};
		},
		write(rows) {
			const heads = rows.map(({ conversationId, origin, state, summary }) => {
				const { forkedFromConversationId: source, parentConversationId: parent } = fromBinary(
					ConversationSummarySchema,
					summary,
				);
				return { ...headColumns(conversationId, { state, source, parent }), ...originColumns(origin) };
			});
			return [{ text: writeHeads(), values: [rowsFor(HEADS, heads, new Bytes())] }];
		},
	},
	activity: {
		table: "conversation_updates.activities a",
		columns: `a.conversation_id, ${ACTIVITY_COLUMNS}, a.sender, a.owner`,
		key: "a.conversation_id",
		read(row) {
			const activity = activityOf(row);
			if (activity === undefined) throw new Error("an activity has no events");
			return { conversationId: text(row.conversation_id), origin: originFrom(row, decoded), activity };
		},
		write: (rows) => [activitiesQuery(rows)],
	},
	update: {
		table: "conversation_updates.updates",
		columns: "*",
		key: "sequence",
		bytes: "coalesce(unpacked_size, octet_length(record))",
		read: (row) => updateRowFrom(row, decoded),
		write(rows) {
			const bytes = new Bytes();
			const updates = rowsFor(UPDATES, rows.map(updateColumns), bytes);
			return [{ text: insertInto(UPDATES, { valueFor: ownerIn("heads") }), values: [updates, bytes.all()] }];
		},
	},
	event: {
		table: "conversation_updates.events",
		columns: "*",
		key: "sequence",
		bytes: "size",
		read: (row) => eventRowFrom(row, eventIdOf(row), decoded),
		write(rows) {
			const bytes = new Bytes();
			const events = rowsFor(EVENTS, rows.map(eventRow), bytes);
			const text = `WITH ${insertEvents({ valueFor: ownerIn("activities") })} SELECT count(*) FROM new_events`;
			return [{ text, values: [events, bytes.all()] }];
		},
	},
	usage: {
		table: "(SELECT * FROM conversation_updates.usage_conversations WHERE is_kept) k",
		columns: `k.*, k.id AS conversation_id, (
			SELECT coalesce(json_agg(json_build_array(${baselineArray((column) => `${column}::text`)})), '[]')::text
			FROM conversation_updates.usage_ledger l WHERE l.conversation = k.id
		) AS rows`,
		key: "k.id",
		read: (row) => baselineFrom(row, decoded),
		write: writeBaselines,
	},
	prunedUpdates: prunedOf("updates"),
	prunedEvents: prunedOf("events"),
	gaps: {
		table: `(
			SELECT conversation_id, json_agg(json_build_array(kind, missing, after_event_id, since::text))::text AS gaps
			FROM conversation_updates.gaps GROUP BY conversation_id
		) g`,
		columns: "*",
		key: "conversation_id",
		read: (row) => ({ conversationId: text(row.conversation_id), gaps: gapsFrom(row.gaps, decoded) }),
		write: (rows) =>
			writeGapsQueries(new Map(rows.map(({ conversationId, gaps }) => [conversationId, { closed: [], opened: gaps }]))),
	},
	accessKey: {
		table: "conversation_updates.access_keys",
		columns: "*",
		key: "name",
		read: accessKeyFrom,
		write: (rows) => rows.map(insertAccessKey),
	},
	sender: {
		table: "conversation_updates.senders",
		columns: "*",
		key: SENDER_KEY,
		read: senderFrom,
		write: (rows) => [sendersQuery(rows)],
	},
	refusedPost: {
		table: "conversation_updates.refused_posts",
		columns: "*",
		key: "id",
		bytes: "bytes",
		read: refusedRowFrom,
		write: (rows) => rows.map(insertRefusedPost),
	},
	erasure: {
		table: "conversation_updates.erasures",
		columns: ERASURE_COLUMNS,
		key: "sequence",
		read: erasureOf,
		write: (rows) => rows.map(insertErasure),
	},
};

const USAGE = tableOf("postgres", "usage_conversations");
const LEDGER = tableOf("postgres", "usage_ledger");

function writeBaselines(baselines: readonly UsageBaseline[]): Query[] {
	const insert = (table: Table, rows: readonly Columns[]) => ({
		text: insertInto(table),
		values: [rowsFor(table, rows, new Bytes())],
	});
	return [
		insert(
			USAGE,
			baselines.map((one) => ({ id: one.conversationId, ...baselineColumns(one) })),
		),
		insert(
			LEDGER,
			baselines.flatMap(({ conversationId: conversation, rows }) =>
				rows.map((row) => ({ conversation, ...ledgerColumns(row) })),
			),
		),
	];
}

/** Returns the function that returns SQL for the owner of the conversation of a row `r`. */
function ownerIn(table: "heads" | "activities") {
	const owner = `(SELECT o.owner FROM conversation_updates.${table} o WHERE o.conversation_id = r.conversation_id)`;
	return (column: string) => (column === "owner" ? owner : undefined);
}

function prunedOf(log: LogTable): RowsOf<PrunedRow> {
	return {
		table: `(SELECT * FROM conversation_updates.pruned WHERE log = '${log}') p`,
		columns: "*",
		key: "conversation_id",
		read: (row) => prunedFrom(row, decoded),
		write: (rows) => [
			{
				text: `
					INSERT INTO conversation_updates.pruned (log, conversation_id, through, removal, owner)
					SELECT '${log}', conversation_id, through, removal, owner
					FROM json_to_recordset($1::json) AS r (conversation_id uuid, through bigint, removal bigint, owner text)
				`,
				values: [json(rows.map(({ conversationId, ...row }) => ({ conversation_id: conversationId, ...row })))],
			},
		],
	};
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

/** Returns a page of rows: see `ExportSource.rows`. */
export async function readRows<Kind extends RowKind>(
	session: Session,
	kind: Kind,
	after: RowKey | undefined,
): Promise<StoredRows[Kind][]> {
	const { table: own, join = "", columns, key, bytes, read }: RowsOf<StoredRows[Kind]> = tables[kind];
	const page = `
		SELECT ${columns} FROM ${own} ${join} ${after === undefined ? "" : `WHERE ${key} > $1`} ORDER BY ${key} LIMIT ${PAGE_ROWS}
	`;
	const limitedPage = `
		SELECT * FROM (
			SELECT *, sum(${bytes}) OVER (ORDER BY ${key}) AS page_bytes, row_number() OVER (ORDER BY ${key}) AS number
			FROM (${page}) page
		) numbered WHERE page_bytes <= ${PAGE_BYTES} OR number = 1 ORDER BY ${key}
	`;
	const [rows = []] = await session.query({
		text: bytes === undefined ? page : limitedPage,
		values: after === undefined ? [] : [after],
	});
	return rows.map(read);
}

/** Returns the statements that write rows, of which there is at least one. */
export function insertQueries<Kind extends RowKind>(kind: Kind, rows: readonly StoredRows[Kind][]): Query[] {
	const { write }: RowsOf<StoredRows[Kind]> = tables[kind];
	return write(rows);
}

export async function countRows(session: Session, after: After): Promise<Counts> {
	const [[row = {}] = []] = await session.query({ text: countsQuery(tables, after) });
	return countsOf(row);
}

/** Returns the key of the last row of a table; undefined when the table is empty. */
export async function lastKey(session: Session, kind: RowKind): Promise<RowKey | undefined> {
	const { table: own, key } = tables[kind];
	const [[row] = []] = await session.query({
		text: `SELECT ${key} AS key FROM ${own} ORDER BY ${key} DESC LIMIT 1`,
	});
	if (row === undefined) return undefined;
	return typeof row.key === "string" ? row.key : bigint(row.key);
}
