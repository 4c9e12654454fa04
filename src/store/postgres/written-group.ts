import type { ConversationSummary } from "../../../gen/conversations/v1/summary_pb.js";
import type { Activity } from "../activity.ts";
import { asciiLower, microsecondsOf } from "../condition.ts";
import type { ConversationState, WrittenUpdate } from "../conversation-state.ts";
import { packRecordAsync, packSecrets } from "../record-column.ts";
import type { NewEvent } from "../store.ts";
import { NUMBERED } from "./numbered-sql.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query } from "./transaction.ts";

/** What a group of appends writes, in one transaction. Its sequences are provisional. */
export interface WrittenGroup {
	readonly updates: WrittenUpdate[];
	/** In order of their sequences. */
	readonly events: WrittenEvent[];
	/** Changed conversations with their last state, and with the summary of their current record if that changed. */
	readonly states: Map<
		string,
		{ readonly state: ConversationState; readonly summary: ConversationSummary | undefined }
	>;
	/** Changed activities. */
	readonly activities: Map<string, Activity>;
}

export interface WrittenEvent {
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly event: NewEvent;
	/** The event's id as the index has it. */
	readonly key: string;
}

/** The service's process that writes a group. */
export interface GroupWriter {
	readonly id: string;
	/** Number of the group, unlike those of the writer's other groups. */
	readonly group: bigint;
	/** Whether other processes are notified. */
	readonly notifies: boolean;
}

/** The statements that write a group, for one transaction. The last one gives `first_update` and `first_event`. */
export async function groupQueries(group: WrittenGroup, writer: GroupWriter): Promise<Query[]> {
	const current = [...group.states].flatMap(([id, { state, summary }]) =>
		summary === undefined ? [] : [{ id, state, summary }],
	);
	return [
		...(group.activities.size === 0 ? [] : [activitiesQuery(group.activities)]),
		...(current.length === 0 ? [] : [projectionQuery(current)]),
		await numberedQuery(group, current, writer),
	];
}

interface CurrentState {
	readonly id: string;
	readonly state: ConversationState;
	readonly summary: ConversationSummary;
}

/** A text or nothing. */
const nullableText = (text: string | undefined) => (text === undefined ? null : encodeText(text));

function activitiesQuery(activities: ReadonlyMap<string, Activity>): Query {
	const rows = [...activities].map(([id, { eventCount, lastAt, toldAt, leaf, message }]) => ({
		conversation_id: id,
		event_count: eventCount,
		last_at: lastAt,
		told_at: toldAt,
		leaf_at: leaf?.at,
		leaf: nullableText(leaf?.text),
		message_at: message?.at,
		message: nullableText(message?.text),
	}));
	return {
		text: `
			INSERT INTO conversation_updates.activities AS a
			SELECT conversation_id, event_count, last_at, told_at, leaf_at, leaf, message_at, message
			FROM json_to_recordset($1::json) AS r (
				conversation_id uuid, event_count bigint, last_at bigint, told_at bigint, leaf_at bigint, leaf text,
				message_at bigint, message text
			)
			ON CONFLICT (conversation_id) DO UPDATE SET
				event_count = excluded.event_count, last_at = excluded.last_at, told_at = excluded.told_at,
				leaf_at = excluded.leaf_at, leaf = excluded.leaf,
				message_at = excluded.message_at, message = excluded.message
		`,
		values: [json(rows)],
	};
}

/**
 * Removes tags that the new current records lack, and writes titles that changed. It is one statement, because each one
 * costs a group as much as several of its rows.
 */
function projectionQuery(current: readonly CurrentState[]): Query {
	const rows = current.map(({ id, summary: { title, tags } }) => ({
		conversation_id: id,
		title: title === undefined ? null : encodeText(asciiLower(title)),
		keys: Object.keys(tags).map(encodeKey),
	}));
	return {
		text: `
			WITH r AS MATERIALIZED (
				SELECT * FROM json_to_recordset($1::json) AS r (conversation_id uuid, title text, keys text[])
			), removed_tags AS (
				DELETE FROM conversation_updates.tags t USING r
				WHERE t.conversation_id = r.conversation_id AND NOT t.key = ANY (r.keys)
			), removed_titles AS (
				DELETE FROM conversation_updates.titles t USING r
				WHERE t.conversation_id = r.conversation_id AND r.title IS NULL
			)
			INSERT INTO conversation_updates.titles SELECT r.conversation_id, r.title FROM r
			WHERE r.title IS NOT NULL AND NOT EXISTS (
				SELECT 1 FROM conversation_updates.titles t
				WHERE t.conversation_id = r.conversation_id AND t.title = r.title
			)
			ON CONFLICT (conversation_id) DO UPDATE SET title = excluded.title
		`,
		values: [json(rows)],
	};
}

async function numberedQuery(
	group: WrittenGroup,
	current: readonly CurrentState[],
	writer: GroupWriter,
): Promise<Query> {
	const packed = await Promise.all([
		Promise.all(group.updates.map(({ record }) => packRecordAsync(record.bytes))),
		Promise.all(group.events.map(({ event }) => packRecordAsync(event.text))),
	]);
	const bytes = new Bytes();
	const updates = group.updates.map((update, n) => {
		const { record, unpackedSize, checksum } = packed[0][n] ?? missing();
		return {
			sequence: update.sequence,
			conversation_id: update.conversationId,
			change: update.change,
			current: update.current,
			origin: update.origin,
			previous_sequence: update.previousSequence,
			received_at: update.receivedAt,
			base_sequence: update.base,
			size: update.size,
			redaction_version: update.record.redactionVersion,
			schema_version: update.record.schemaVersion,
			unpacked_size: unpackedSize,
			checksum,
			...bytes.add("summary", update.summary),
			...(update.activity === undefined ? {} : bytes.add("activity", update.activity)),
			...bytes.add("record", record),
		};
	});
	const events = group.events.map(({ conversationId, receivedAt, event, key }, n) => {
		const { record, unpackedSize, checksum } = packed[1][n] ?? missing();
		return {
			ordinal: n + 1,
			conversation_id: conversationId,
			event_id: key,
			received_at: receivedAt,
			happened_at: event.happenedAt,
			kind: encodeText(event.kind),
			source: encodeText(event.source),
			size: event.text.byteLength,
			redaction_version: event.redactionVersion,
			unpacked_size: unpackedSize,
			checksum,
			secrets: packSecrets(event.secrets),
			...bytes.add("text", record),
		};
	});
	const currents = current.map(({ id, state, summary }) => ({
		...stateRow(id, state),
		agent_kind: encodeKey(summary.agentKind),
		model: encodeKey(summary.model),
		parent_id: summary.parentConversationId === undefined ? null : encodeKey(summary.parentConversationId),
		created_at: microsecondsOf(summary.createdAt),
		updated_at: microsecondsOf(summary.updatedAt),
	}));
	const states = [...group.states].flatMap(([id, { state, summary }]) =>
		summary === undefined ? [stateRow(id, state)] : [],
	);
	const tags = current.flatMap(({ id, state: { sequence }, summary }) =>
		Object.entries(summary.tags).map(([key, value]) => ({
			conversation_id: id,
			key: encodeKey(key),
			value: encodeKey(value),
			sequence,
		})),
	);
	const notifies = writer.notifies && updates.length + events.length > 0;
	const rows = [updates, events, currents, states, tags].map(json);
	return {
		text: NUMBERED,
		values: [updates.length, events.length, bytes.all(), ...rows, writer.id, writer.group, notifies],
	};
}

function stateRow(id: string, state: ConversationState) {
	return {
		conversation_id: id,
		sequence: state.sequence,
		status: state.status,
		order_time: state.orderTime,
		newest_sequence: state.newest?.sequence,
		newest_updated_at: state.newest?.updatedAt,
		newest_size: state.newest?.size,
		revision: state.revision,
		posted_at: state.postedAt,
		is_behind: state.isBehind,
		told: nullableText(state.told),
	};
}

/** The byte strings of a group, one after the other, which the statement cuts: one parameter instead of many. */
class Bytes {
	readonly #parts: Uint8Array[] = [];
	#size = 0;

	/** Adds a byte string; gives the members of a row that say where it is. Places begin with 1. */
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

/** JSON text in which integers of any size are strings; members that are undefined are left out. */
function json(rows: readonly object[]): string {
	return JSON.stringify(rows, (_, value: unknown) => (typeof value === "bigint" ? value.toString() : value));
}

function missing(): never {
	throw new Error("there is no packed form of a record");
}
