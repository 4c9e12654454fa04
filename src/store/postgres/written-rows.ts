import type { Activity } from "../activity.ts";
import type { ConversationState } from "../conversation-state.ts";
import { errorJson } from "../error-column.ts";
import type { ConversationOrigin } from "../owners.ts";
import { unpackedSizeOf } from "../record-column.ts";
import { originColumn } from "../rows.ts";
import type { ActivityRow, EventRow, UpdateRow } from "../stored-rows.ts";
import type { Head } from "../written-group.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query } from "./transaction.ts";

/** Rows of the tables as statements take them: members of JSON, and positions in the byte string of {@link Bytes}. */

/** Returns the stored form of a text; null without a text. */
const nullableText = (text: string | undefined) => (text === undefined ? null : encodeText(text));

/** Returns the query that writes activities. The origin of one that exists stays the same. */
export function activitiesQuery(activities: readonly ActivityRow[]): Query {
	const rows = activities.map(({ conversationId, origin, activity }) => ({
		conversation_id: conversationId,
		...originColumns(origin),
		...activityColumns(activity),
	}));
	return {
		name: "write_activities",
		text: `
			INSERT INTO conversation_updates.activities AS a (
				conversation_id, event_count, last_at, last_state_update_at, leaf_at, leaf, message_at, message,
				first_message_at, first_message, error_at, error, error_sequence, sender, owner
			)
			SELECT conversation_id, event_count, last_at, last_state_update_at, leaf_at, leaf, message_at, message,
				first_message_at, first_message, error_at, error, error_sequence, sender, owner
			FROM json_to_recordset($1::json) AS r (
				conversation_id uuid, event_count bigint, last_at bigint, last_state_update_at bigint, leaf_at bigint, leaf text,
				message_at bigint, message text, first_message_at bigint, first_message text, error_at bigint, error text,
				error_sequence bigint, sender text, owner text
			)
			ON CONFLICT (conversation_id) DO UPDATE SET
				event_count = excluded.event_count, last_at = excluded.last_at, last_state_update_at = excluded.last_state_update_at,
				leaf_at = excluded.leaf_at, leaf = excluded.leaf,
				message_at = excluded.message_at, message = excluded.message,
				first_message_at = excluded.first_message_at, first_message = excluded.first_message,
				error_at = excluded.error_at, error = excluded.error, error_sequence = excluded.error_sequence
		`,
		values: [json(rows)],
	};
}

function originColumns({ sender, owner }: ConversationOrigin) {
	return { sender: nullableText(sender), owner: nullableText(owner) };
}

function activityColumns({ eventCount, lastAt, lastStateUpdateAt, leaf, message, firstMessage, error }: Activity) {
	return {
		event_count: eventCount,
		last_at: lastAt,
		last_state_update_at: lastStateUpdateAt,
		leaf_at: leaf?.at,
		leaf: nullableText(leaf?.text),
		message_at: message?.at,
		message: nullableText(message?.text),
		first_message_at: firstMessage?.at,
		first_message: nullableText(firstMessage?.text),
		error_at: error?.at,
		error: nullableText(error && errorJson(error)),
		error_sequence: error?.sequence,
	};
}

/**
 * Returns a row of `UPDATE_ROW`.
 *
 * @param errorSequence sequence of the error of the summary, if the fields of the activity lack it
 */
export function updateRow({ record, ...update }: UpdateRow, bytes: Bytes, errorSequence?: bigint) {
	return {
		sequence: update.sequence,
		conversation_id: update.conversationId,
		change: update.change,
		current: update.current,
		origin: update.origin,
		previous_sequence: update.previousSequence,
		received_at: update.receivedAt,
		error_sequence: errorSequence,
		base_sequence: update.base,
		size: update.size,
		sender: nullableText(update.sender),
		redaction_version: record.redactionVersion,
		schema_version: record.schemaVersion,
		unpacked_size: record.unpackedSize,
		checksum: record.checksum,
		...bytes.add("summary", update.summary),
		...(update.activity === undefined ? {} : bytes.add("activity", update.activity)),
		...bytes.add("record", record.record),
	};
}

/**
 * Returns a row of `EVENT_ROW`.
 *
 * @param ordinal the event's sequence, or its distance from the newest one
 * @param key id of the event in its indexed form: see `encodeKey`
 */
export function eventRow(
	ordinal: number | bigint,
	key: string,
	{ text, ...event }: Omit<EventRow, "sequence" | "eventId">,
	bytes: Bytes,
) {
	return {
		ordinal,
		conversation_id: event.conversationId,
		event_id: key,
		received_at: event.receivedAt,
		happened_at: event.happenedAt,
		kind: encodeText(event.kind),
		source: encodeText(event.source),
		sender: nullableText(event.sender),
		origin: originColumn(event.origin),
		size: unpackedSizeOf(text),
		redaction_version: event.redactionVersion,
		unpacked_size: text.unpackedSize,
		checksum: text.checksum,
		secrets: event.secrets,
		llm_response_id: nullableText(event.llmResponseId),
		...bytes.add("text", text.record),
	};
}

/** @param origin undefined for a conversation that has a head already, which keeps its own */
export function headRow(id: string, { state, source, parent }: Head, origin: ConversationOrigin | undefined) {
	return {
		...stateRow(id, state),
		source_id: source === undefined ? null : encodeKey(source),
		parent_id: parent === undefined ? null : encodeKey(parent),
		...(origin && originColumns(origin)),
	};
}

function stateRow(id: string, state: ConversationState) {
	return {
		conversation_id: id,
		sequence: state.sequence,
		status: state.status,
		order_time: state.orderTime,
		life_began_at: state.lifeBeganAt,
		run_started_at: state.runStartedAt,
		created_at: state.createdAt,
		updated_at: state.updatedAt,
		newest_sequence: state.newestPosted?.sequence,
		newest_updated_at: state.newestPosted?.updatedAt,
		newest_size: state.newestPosted?.size,
		revision: state.revision,
		posted_at: state.postedAt,
		has_unapplied_events: state.hasUnappliedEvents,
		member_times: nullableText(state.memberTimes),
	};
}

/** Concatenates the byte strings of rows into one parameter, from which the statement cuts them out again. */
export class Bytes {
	readonly #parts: Uint8Array[] = [];
	#size = 0;

	/** Adds a byte string. Returns the members of a row that locate it. Positions begin with 1. */
	add(name: string, bytes: Uint8Array): Record<string, number> {
		const place = { [`${name}_at`]: this.#size + 1, [`${name}_size`]: bytes.byteLength };
		this.#parts.push(bytes);
		this.#size += bytes.byteLength;
		return place;
	}

	all(): Buffer {
		return Buffer.concat(this.#parts, this.#size);
	}
}

/** Returns rows as JSON text, in which bigints are strings. Members that are undefined are left out. */
export function json(rows: readonly object[]): string {
	// A replacer function, which is called for each member, takes five times as long.
	return JSON.stringify(rows.map(withBigintsAsStrings));
}

function withBigintsAsStrings(row: object): object {
	const texts: Record<string, unknown> = { ...row };
	for (const name in texts) if (typeof texts[name] === "bigint") texts[name] = texts[name].toString();
	return texts;
}
