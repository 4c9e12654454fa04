import { create, toBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import { concatBytes, mergeProtected, mergeRecord, withLeaf } from "../record/record-delta.ts";
import { AMOUNTS, type Amounts, mapAmounts } from "../usage/amounts.ts";
import { type Activity, encodeErrorSequence, type LastError, leafOver } from "./activity.ts";
import type { ProtectedEvent, StoredEvent, StoredUpdate } from "./entries.ts";
import type { Head, WrittenEvent } from "./group.ts";
import type { HeadState, WrittenUpdate } from "./head.ts";
import type { Ownership } from "./owners.ts";
import {
	columnOfEvent,
	packSecrets,
	readOrUnreadable,
	unpackerOf,
	unpackRecord,
	unpackSecrets,
} from "./record-column.ts";
import type { Columns, Session, Value } from "./session.ts";
import { columnsOf, readRow } from "./typed-rows.ts";
import {
	bigint,
	blob,
	boolean,
	integer,
	keyOf,
	nullable,
	type RecordColumn,
	type Row,
	type StoredRecord,
	text,
	type Unreadable,
} from "./values.ts";

/** Reads and makes rows. */

/** Reads a row whose columns are stored again. */
export function columnsFrom(row: Row): Columns {
	return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, columnValue(value)]));
}

/** Reads a column as a value that is stored again. */
export function columnValue(value: unknown): Value {
	switch (typeof value) {
		case "string":
		case "bigint":
		case "number":
		case "boolean":
			return value;
	}
	if (value === null || value instanceof Uint8Array) return value;
	throw new TypeError("a column has an unexpected value");
}

/** Reads the columns of a packed record or event text, without decompressing it. A missing row is an error. */
export function packedColumnsFrom(row: Row | undefined, column: "record" | "text"): RecordColumn {
	return {
		record: blob(row?.[column]),
		unpackedSize: nullable(integer, row?.unpacked_size) ?? null,
		checksum: integer(row?.checksum),
	};
}

/**
 * Reads a stored record, whole or a delta, into an ArrayBuffer of its own.
 *
 * @throws Error when the record is damaged
 */
export function recordFrom(row: Row): StoredRecord {
	return {
		bytes: unpackRecord(packedColumnsFrom(row, "record")),
		redactionVersion: integer(row.redaction_version),
	};
}

/** Returns SQL for whether an entry is the one of the conversation and with the sequence of another row. */
export function isOfRow(entry: string, row: string): string {
	return `${entry}.conversation_id = ${row}.conversation_id AND ${entry}.sequence = ${row}.sequence`;
}

/** SQL columns of an update `u` that {@link readRecords} reads, after a comma. The rows have `conversation_id` too. */
export const RECORD_COLUMNS = ", u.base_sequence, u.record, u.unpacked_size, u.checksum, u.redaction_version";

/**
 * Reads the whole records that are the bases of deltas, once each.
 *
 * @returns a function that returns the whole record of one of the rows, in memory that nothing else uses. A damaged record
 *   does not make the others fail
 */
export async function readRecords(
	{ all, isIn, isAmong, dialect: { schema } }: Session,
	rows: readonly Row[],
): Promise<(row: Row) => StoredRecord | Unreadable> {
	const deltas = rows.filter(({ base_sequence }) => base_sequence !== null);
	const bases = new Map<bigint, StoredRecord | Unreadable>();
	if (deltas.length > 0) {
		const found = await all(
			`SELECT u.sequence ${RECORD_COLUMNS} FROM ${schema}updates u
			WHERE ${isIn("u.conversation_id")} AND ${isAmong("u.sequence")}`,
			[...new Set(deltas.map(({ conversation_id }) => text(conversation_id)))],
			[...new Set(deltas.map(({ base_sequence }) => bigint(base_sequence)))],
		);
		for (const row of found)
			bases.set(
				bigint(row.sequence),
				readOrUnreadable(() => recordFrom(row)),
			);
	}
	return (row) =>
		readOrUnreadable(() => {
			const base = nullable(bigint, row.base_sequence);
			const record = recordFrom(row);
			if (base === undefined) return record;
			const whole = bases.get(base);
			if (whole === undefined) throw new Error("the base record of a delta is missing");
			return "unreadable" in whole ? whole : mergeProtected(whole, record, mergeRecord);
		});
}

/** Reads the activity of a conversation. */
export function activityFrom(row: Row): Activity {
	const timedText = (column: "message" | "first_message" | "leaf") => {
		const value = nullable(text, row[column]);
		return value === undefined ? undefined : { text: value, at: bigint(row[`${column}_at`]) };
	};
	return {
		eventCount: bigint(row.event_count),
		lastAt: bigint(row.last_at),
		message: timedText("message"),
		firstMessage: timedText("first_message"),
		error: errorFrom(row),
		leaf: timedText("leaf"),
		lastStateUpdateAt: nullable(bigint, row.last_state_update_at),
	};
}

/** SQL columns of an activity `a` that {@link activityFrom} reads. */
export const ACTIVITY_COLUMNS = `
	a.event_count, a.last_at, a.last_state_update_at, a.leaf_at, a.leaf, a.message_at, a.message,
	a.first_message_at, a.first_message, a.error_at, a.error, a.error_sequence
`;

/** Reads the activity from the row of an outer join; undefined when the conversation has had no event. */
export function joinedActivityFrom(row: Row): Activity | undefined {
	return row.event_count === null ? undefined : activityFrom(row);
}

/** Reads the state of a conversation with a record. */
export function stateFrom(row: Row): HeadState {
	const head = readRow("heads", row);
	const { conversationId, sourceId, parentId, sender, owner, newestSequence, newestUpdatedAt, newestSize, ...state } =
		head;
	const size = newestSize ?? 0;
	const newest =
		newestSequence === undefined ? undefined : { sequence: newestSequence, updatedAt: newestUpdatedAt, size };
	return { ...state, newestPosted: newest };
}

/** Reads who posted a conversation first, from its columns `sender` and `owner`. */
export function ownershipFrom(row: Row): Ownership {
	return { sender: nullable(text, row.sender), owner: nullable(text, row.owner) };
}

/** Encodes the `ConversationSummary` fields of the ownership. */
function encodeOwnership({ sender = "", owner = "" }: Ownership): Uint8Array {
	return toBinary(ConversationSummarySchema, create(ConversationSummarySchema, { sender, owner }));
}

/** Reads an update as reads return it. The row has the conversation's ownership as `first_sender` and `owner`. */
export function updateFrom(row: Row, record: StoredUpdate["record"]): StoredUpdate {
	const ownership = { sender: nullable(text, row.first_sender), owner: nullable(text, row.owner) };
	// As they were when the update was written.
	const activity = withErrorSequence(nullable(blob, row.activity), nullable(bigint, row.error_sequence));
	return {
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		change: integer(row.change),
		current: boolean(row.current),
		origin: integer(row.origin),
		previousSequence: nullable(bigint, row.previous_sequence),
		receivedAt: bigint(row.received_at),
		sender: nullable(text, row.sender),
		owner: ownership.owner,
		summary: summaryFrom(row, activity, ownership),
		record,
	};
}

/** Returns a current record with the leaf from events. The row needs the conversation's `status` and `posted_at`. */
export function currentRecordFrom(
	row: Row,
	activity: Activity | undefined,
	record: StoredRecord | Unreadable | undefined,
): StoredRecord | Unreadable | undefined {
	const leaf = leafOver({ status: integer(row.status), postedAt: nullable(bigint, row.posted_at) }, activity);
	if (leaf === undefined || record === undefined || "unreadable" in record) return record;
	return { ...record, bytes: withLeaf(record.bytes, leaf) };
}

/** Reads a summary and adds the fields of the activity and of the ownership, in an ArrayBuffer of its own. */
export function summaryFrom(row: Row, activity: Uint8Array | undefined, ownership: Ownership): Uint8Array {
	const summary = row.summary === null ? encodeWithoutRecord(row) : blob(row.summary);
	return concatBytes([summary, ...(activity === undefined ? [] : [activity]), encodeOwnership(ownership)]);
}

/** Encodes the summary fields of a conversation without a record that do not come from its activity. */
function encodeWithoutRecord(row: Row): Uint8Array {
	const [createdAt, updatedAt] = [row.created_at, row.updated_at].map((time) => fromMicroseconds(bigint(time)));
	const summary = { id: text(row.conversation_id), ...(createdAt && { createdAt }), ...(updatedAt && { updatedAt }) };
	return toBinary(ConversationSummarySchema, create(ConversationSummarySchema, summary));
}

/** Adds the sequence of the error to the encoded fields of an activity. */
export function withErrorSequence(
	activity: Uint8Array | undefined,
	errorSequence: bigint | undefined,
): Uint8Array | undefined {
	if (activity === undefined || errorSequence === undefined) return activity;
	return concatBytes([activity, encodeErrorSequence(errorSequence)]);
}

/**
 * Reads events as reads return them, each text into an ArrayBuffer of its own. If the content of one is damaged, the other
 * events are still read.
 */
export function storedEventsFrom(rows: readonly Row[]): StoredEvent[] {
	const contents = rows.map((row) => readOrUnreadable(() => contentFrom(row)));
	const unpack = unpackerOf(contents.flatMap((content) => ("unreadable" in content ? [] : [content.text])));
	return rows.map((row, index) => {
		const content = contents[index] ?? { unreadable: "" };
		return {
			sequence: bigint(row.sequence),
			conversationId: text(row.conversation_id),
			receivedAt: bigint(row.received_at),
			happenedAt: bigint(row.happened_at),
			kind: text(row.kind),
			source: text(row.source),
			sender: nullable(text, row.sender),
			origin: row.origin === null ? UpdateOrigin.POSTED : integer(row.origin),
			owner: nullable(text, row.owner),
			event: "unreadable" in content ? content : readOrUnreadable(() => ({ ...content, text: unpack(content.text) })),
		};
	});
}

/** Reads the content of an event, without decompressing it. */
function contentFrom(row: Row): Omit<ProtectedEvent, "text"> & { readonly text: RecordColumn } {
	return {
		text: packedColumnsFrom(row, "text"),
		secrets: unpackSecrets(nullable(text, row.secrets)),
		redactionVersion: integer(row.redaction_version),
	};
}

/** Returns the columns of an update with its packed record, and the owner of its conversation. */
export function updateColumns(update: WrittenUpdate, packed: RecordColumn, owner: string | undefined): Columns {
	return columnsOf("updates", {
		...update,
		...packed,
		unpackedSize: packed.unpackedSize ?? undefined,
		baseSequence: update.base,
		redactionVersion: update.record.redactionVersion,
		owner,
	});
}

/** Returns the columns of an event, and the owner of its conversation. */
export function eventColumns({ event, ...posted }: WrittenEvent, owner: string | undefined): Columns {
	const { record, unpackedSize, checksum } = columnOfEvent(event);
	return columnsOf("events", {
		...event,
		...posted,
		eventId: keyOf(event.eventId),
		unpackedSize: unpackedSize ?? undefined,
		checksum,
		secrets: packSecrets(event.secrets) ?? undefined,
		owner,
		// Nearly all events are posted, and null takes no space.
		origin: posted.origin === UpdateOrigin.POSTED ? undefined : posted.origin,
		text: record,
	});
}

/** Returns the columns of a head without those of {@link ownershipColumns}. */
export function headColumns(conversationId: string, { state, source, parent }: Head): Columns {
	const { newestPosted, ...others } = state;
	return columnsOf("heads", {
		...others,
		conversationId,
		newestSequence: newestPosted?.sequence,
		newestUpdatedAt: newestPosted?.updatedAt,
		newestSize: newestPosted?.size,
		sourceId: source && keyOf(source),
		parentId: parent && keyOf(parent),
	});
}

/** Returns the columns of an activity without those of {@link ownershipColumns}. */
export function activityColumns(conversationId: string, activity: Activity) {
	const { leaf, message, firstMessage, error } = activity;
	return {
		conversation_id: conversationId,
		event_count: activity.eventCount,
		last_at: activity.lastAt,
		last_state_update_at: activity.lastStateUpdateAt ?? null,
		leaf_at: leaf?.at ?? null,
		leaf: leaf?.text ?? null,
		message_at: message?.at ?? null,
		message: message?.text ?? null,
		first_message_at: firstMessage?.at ?? null,
		first_message: firstMessage?.text ?? null,
		error_at: error?.at ?? null,
		error: error === undefined ? null : JSON.stringify([error.code, error.kind, error.text, error.retryable ?? null]),
		error_sequence: error?.sequence ?? null,
	};
}

/** Returns the columns that tell who posted a conversation first. A row that is written again keeps its own. */
export function ownershipColumns({ sender, owner }: Ownership) {
	return { sender: sender ?? null, owner: owner ?? null };
}

const COLUMN_OF: Readonly<Record<keyof Amounts, string>> = {
	cost: "cost",
	promptTokens: "prompt_tokens",
	completionTokens: "completion_tokens",
	cacheReadTokens: "cache_read_tokens",
	cacheWriteTokens: "cache_write_tokens",
	reasoningTokens: "reasoning_tokens",
	calls: "calls",
};
/** Names of the columns with amounts. */
export const AMOUNT_COLUMNS = Object.values(COLUMN_OF);

/** Length of the periods of the sums of all time: beyond every time, before or after the Unix epoch. */
export const ALL_TIME = 2n ** 32n;
/** Lengths of the periods of sums: a quarter of an hour, an hour, a day from midnight to midnight UTC, and all time. */
export const PERIODS = [1n, 4n, 96n, ALL_TIME] as const;

/** Returns the start of the period of some quarters of an hour that has a quarter. */
export function periodStart(quarter: bigint, length: bigint): bigint {
	return quarter - (((quarter % length) + length) % length);
}

export function amountColumns(amounts: Amounts): Readonly<Record<string, bigint>> {
	return Object.fromEntries(AMOUNTS.map((name) => [COLUMN_OF[name], amounts[name]]));
}

/** Reads the columns with amounts. */
export function amountsFrom(row: Row): Amounts {
	return mapAmounts((name) => bigint(row[COLUMN_OF[name]]));
}

/** Reads the latest error of an activity. */
function errorFrom(row: Row): LastError | undefined {
	const json = nullable(text, row.error);
	if (json === undefined) return undefined;
	const values: unknown = JSON.parse(json);
	const [code, kind, detail, retryable]: unknown[] = Array.isArray(values) ? values : [];
	return {
		code: text(code),
		kind: text(kind),
		text: text(detail),
		retryable: typeof retryable === "boolean" ? retryable : undefined,
		at: bigint(row.error_at),
		sequence: bigint(row.error_sequence),
	};
}
