import { concatBytes, withLeaf } from "../record/record-delta.ts";
import { type Activity, encodeActivity, leafOver } from "./activity.ts";
import type { ConversationState } from "./conversation-state.ts";
import { ownBytes, type RecordColumn, unpackRecord, unpackSecrets } from "./record-column.ts";
import type {
	LiveState,
	ProtectedEvent,
	StoredConversation,
	StoredEvent,
	StoredRecord,
	StoredUpdate,
	UnreadableRecord,
} from "./store.ts";
import type { PrunedConversation, TransferEvent, TransferUpdate } from "./transfer.ts";
import { bigint, blob, boolean, integer, nullable, type Row, text } from "./values.ts";

/**
 * Rows whose columns have the same names in every engine. Texts that an engine keeps in a form of its own are read by a
 * function of its own.
 */

/** The tables whose rows are numbered by a sequence of their own; a row has `received_at`. */
export type LogTable = "updates" | "events";

/** Reads a column of texts. */
type ReadText = (value: unknown) => string;

/**
 * A packed column.
 *
 * @param row undefined is a row that is missing, and fails
 * @param prefix what the names of the columns begin with
 */
export function packedOf(row: Row | undefined, column: "record" | "text", prefix = ""): RecordColumn {
	return {
		record: blob(row?.[prefix + column]),
		unpackedSize: nullable(integer, row?.[`${prefix}unpacked_size`]) ?? null,
		checksum: integer(row?.[`${prefix}checksum`]),
	};
}

/**
 * A record as it is stored, whole or a delta, in memory of its own.
 *
 * @param row undefined is a row that is missing, and fails
 * @param prefix what the names of the columns begin with
 * @throws Error when the record is not what was stored
 */
export function recordFrom(row: Row | undefined, prefix = ""): StoredRecord {
	return {
		bytes: unpackRecord(packedOf(row, "record", prefix)),
		redactionVersion: integer(row?.[`${prefix}redaction_version`]),
		schemaVersion: integer(row?.[`${prefix}schema_version`]),
	};
}

/**
 * What an event says, in memory of its own.
 *
 * @param row undefined is a row that is missing, and fails
 * @throws Error when the event is not what was stored
 */
export function protectedEventFrom(row: Row | undefined): ProtectedEvent {
	return {
		text: unpackRecord(packedOf(row, "text")),
		secrets: unpackSecrets(nullable(text, row?.secrets)),
		redactionVersion: integer(row?.redaction_version),
	};
}

/** The activity of a conversation. */
export function activityFrom(row: Row, readText: ReadText): Activity {
	const told = (column: "message" | "leaf") => {
		const value = nullable(readText, row[column]);
		return value === undefined ? undefined : { text: value, at: bigint(row[`${column}_at`]) };
	};
	return {
		eventCount: bigint(row.event_count),
		lastAt: bigint(row.last_at),
		message: told("message"),
		leaf: told("leaf"),
		toldAt: nullable(bigint, row.told_at),
	};
}

/** What the row of a conversation says of its live state; undefined for a conversation without a record. */
export function liveStateFrom(
	row: Row | undefined,
	readText: ReadText,
): Pick<LiveState, "revision" | "told" | "postedAt" | "hasUnappliedEvents"> {
	if (row === undefined) return { revision: 0n, told: undefined, postedAt: undefined, hasUnappliedEvents: false };
	return {
		revision: bigint(row.revision),
		told: nullable(readText, row.told),
		postedAt: nullable(bigint, row.posted_at),
		hasUnappliedEvents: boolean(row.has_unapplied_events),
	};
}

/** The state of a conversation with a record. */
export function stateFrom(row: Row, readText: ReadText): ConversationState {
	const sequence = nullable(bigint, row.newest_sequence);
	return {
		sequence: bigint(row.sequence),
		status: integer(row.status),
		orderTime: nullable(bigint, row.order_time),
		newest:
			sequence === undefined
				? undefined
				: { sequence, updatedAt: nullable(bigint, row.newest_updated_at), size: integer(row.newest_size) },
		...liveStateFrom(row, readText),
	};
}

/** What every form of an update has. */
function updateColumnsFrom(row: Row): Omit<StoredUpdate, "summary" | "record"> {
	return {
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		change: integer(row.change),
		current: boolean(row.current),
		origin: integer(row.origin),
		previousSequence: nullable(bigint, row.previous_sequence),
		receivedAt: bigint(row.received_at),
	};
}

/** An update as reads give it. */
export function updateFrom(row: Row, record: StoredUpdate["record"]): StoredUpdate {
	return { ...updateColumnsFrom(row), summary: summaryOf(row, nullable(blob, row.activity)), record };
}

/** An update as it is copied. */
export function transferUpdateFrom(row: Row): TransferUpdate {
	return {
		...updateColumnsFrom(row),
		summary: blob(row.summary),
		activity: nullable(blob, row.activity),
		base: nullable(bigint, row.base_sequence),
		size: integer(row.size),
		record: {
			...packedOf(row, "record"),
			redactionVersion: integer(row.redaction_version),
			schemaVersion: integer(row.schema_version),
		},
	};
}

/** A conversation as lists give it. The row has what {@link currentRecordFrom} needs. */
export function conversationFrom(
	row: Row,
	activity: Activity | undefined,
	record: StoredConversation["record"],
): StoredConversation {
	return {
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		summary: summaryOf(row, activity && encodeActivity(activity)),
		record: currentRecordFrom(row, activity, record),
	};
}

/** A current record with the leaf that events gave it. The row has the conversation's `status` and `posted_at`. */
export function currentRecordFrom(
	row: Row,
	activity: Activity | undefined,
	record: StoredRecord | UnreadableRecord | undefined,
): StoredRecord | UnreadableRecord | undefined {
	const leaf = leafOver({ status: integer(row.status), postedAt: nullable(bigint, row.posted_at) }, activity);
	if (leaf === undefined || record === undefined || "unreadable" in record) return record;
	return { ...record, bytes: withLeaf(record.bytes, leaf) };
}

/** The summary of a row with the activity's fields, in memory of its own. */
function summaryOf(row: Row, activity: Uint8Array | undefined): Uint8Array {
	const summary = blob(row.summary);
	return activity === undefined ? ownBytes(summary) : concatBytes([summary, activity]);
}

/** What every form of an event has. */
export function eventColumnsFrom(row: Row, readText: ReadText): Omit<StoredEvent, "event"> {
	return {
		sequence: bigint(row.sequence),
		conversationId: text(row.conversation_id),
		receivedAt: bigint(row.received_at),
		happenedAt: bigint(row.happened_at),
		kind: readText(row.kind),
		source: readText(row.source),
	};
}

/** An event as it is copied. */
export function transferEventFrom(row: Row, eventId: string, readText: ReadText): TransferEvent {
	return {
		...eventColumnsFrom(row, readText),
		eventId,
		redactionVersion: integer(row.redaction_version),
		secrets: nullable(text, row.secrets) ?? null,
		text: packedOf(row, "text"),
	};
}

/** What was pruned of a log and a conversation, as it is copied. */
export function prunedFrom(row: Row): PrunedConversation {
	return {
		conversationId: text(row.conversation_id),
		through: bigint(row.through),
		removal: bigint(row.removal),
	};
}
