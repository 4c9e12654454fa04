import type { Activity } from "./activity.ts";
import type { ConversationState } from "./conversation-state.ts";
import type { RecordColumn } from "./record-column.ts";
import type { PrunedConversation, TransferRows } from "./transfer.ts";
import { bigint, blob, integer, nullable, type Row, text } from "./values.ts";

/**
 * Rows whose columns have the same names in every engine. What an engine keeps in a form of its own, texts and booleans,
 * is read by its own functions.
 */

/** Reads a column that is not null. */
type Read<Value> = (value: unknown) => Value;

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

/** The activity of a conversation. */
export function activityFrom(row: Row, readText: Read<string>): Activity {
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

/** The state of a conversation with a record. */
export function stateFrom(row: Row, readText: Read<string>, readBoolean: Read<boolean>): ConversationState {
	const sequence = nullable(bigint, row.newest_sequence);
	return {
		sequence: bigint(row.sequence),
		status: integer(row.status),
		orderTime: nullable(bigint, row.order_time),
		newest:
			sequence === undefined
				? undefined
				: { sequence, updatedAt: nullable(bigint, row.newest_updated_at), size: integer(row.newest_size) },
		revision: bigint(row.revision),
		told: nullable(readText, row.told),
		postedAt: nullable(bigint, row.posted_at),
		hasUnappliedEvents: readBoolean(row.has_unapplied_events),
	};
}

/** An update as it is copied. */
export function transferUpdateFrom(row: Row, readBoolean: Read<boolean>): TransferRows["updates"] {
	return {
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		receivedAt: bigint(row.received_at),
		change: integer(row.change),
		current: readBoolean(row.current),
		origin: integer(row.origin),
		previousSequence: nullable(bigint, row.previous_sequence),
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

/** What was pruned of a log and a conversation, as it is copied. */
export function prunedFrom(row: Row): PrunedConversation {
	return {
		conversationId: text(row.conversation_id),
		through: bigint(row.through),
		removal: bigint(row.removal),
	};
}
