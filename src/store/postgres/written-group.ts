import type { ConversationSummary } from "../../../gen/conversations/v1/summary_pb.js";
import type { Activity } from "../activity.ts";
import { asciiLower, microsecondsOf } from "../condition.ts";
import type { ConversationState, WrittenUpdate } from "../conversation-state.ts";
import { packRecordAsync } from "../record-column.ts";
import type { NewEvent } from "../store.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query } from "./transaction.ts";

/**
 * A number above this one is provisional: it stands for the newest number when the group is written, plus the difference.
 * Sequences and revisions are not above it, and provisional ones are greater than all others, as they will be.
 */
export const PROVISIONAL = 2n ** 62n;

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

/** The channel on which processes tell each other of new entries. */
export const CHANNEL = "conversation_updates";

/** The statements that write a group, for one transaction. The last one gives `first_update` and `first_event`. */
export async function groupQueries(group: WrittenGroup, writer: GroupWriter): Promise<Query[]> {
	const current = [...group.states].flatMap(([id, { state, summary }]) =>
		summary === undefined ? [] : [{ id, state, summary }],
	);
	return [
		...(group.activities.size === 0 ? [] : [activitiesQuery(group.activities)]),
		...(current.length === 0 ? [] : projectionQueries(current)),
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

/** Removes tags that the new current records lack, and writes titles that changed. */
function projectionQueries(current: readonly CurrentState[]): Query[] {
	const rows = current.map(({ id, summary: { title, tags } }) => ({
		conversation_id: id,
		title: title === undefined ? null : encodeText(asciiLower(title)),
		keys: Object.keys(tags).map(encodeKey),
	}));
	const values = [json(rows)];
	const records = "json_to_recordset($1::json) AS r (conversation_id uuid, title text, keys text[])";
	return [
		{
			text: `
				DELETE FROM conversation_updates.tags t USING ${records}
				WHERE t.conversation_id = r.conversation_id AND NOT t.key = ANY (r.keys)
			`,
			values,
		},
		{
			text: `
				DELETE FROM conversation_updates.titles t USING ${records}
				WHERE t.conversation_id = r.conversation_id AND r.title IS NULL
			`,
			values,
		},
		{
			text: `
				INSERT INTO conversation_updates.titles SELECT r.conversation_id, r.title FROM ${records}
				WHERE r.title IS NOT NULL AND NOT EXISTS (
					SELECT 1 FROM conversation_updates.titles t
					WHERE t.conversation_id = r.conversation_id AND t.title = r.title
				)
				ON CONFLICT (conversation_id) DO UPDATE SET title = excluded.title
			`,
			values,
		},
	];
}

const STATE = `
	sequence bigint, status bigint, order_time bigint, newest_sequence bigint, newest_updated_at bigint,
	newest_size bigint, revision bigint, posted_at bigint, is_behind boolean, told text
`;
const STATE_NAMES = [
	"sequence",
	"status",
	"order_time",
	"newest_sequence",
	"newest_updated_at",
	"newest_size",
	"revision",
	"posted_at",
	"is_behind",
	"told",
];
const FILTER_NAMES = ["agent_kind", "model", "parent_id", "created_at", "updated_at"];
const PROVISIONAL_NAMES = ["sequence", "newest_sequence", "revision"];

/** SQL for the value of a column of `r` whose number may be provisional. */
function numbered(column: string, first: "first_update" | "first_event" = "first_update"): string {
	return `CASE WHEN r.${column} > ${PROVISIONAL} THEN p.${first} + (r.${column} - ${PROVISIONAL}) ELSE r.${column} END`;
}

const STATE_VALUES = STATE_NAMES.map((name) => (PROVISIONAL_NAMES.includes(name) ? numbered(name) : `r.${name}`));

/**
 * The statement that takes the numbers and writes all that has them. It locks the row of `positions` until the transaction
 * ends, so it is the last one.
 */
const NUMBERED = `
	WITH p AS (
		UPDATE conversation_updates.positions
		SET newest_update = newest_update + $1::bigint, newest_event = newest_event + $2::bigint
		RETURNING newest_update - $1::bigint AS first_update, newest_event - $2::bigint AS first_event,
			newest_update, newest_event
	), new_updates AS (
		INSERT INTO conversation_updates.updates (
			sequence, conversation_id, change, current, origin, previous_sequence, received_at, base_sequence, size,
			redaction_version, schema_version, unpacked_size, checksum, summary, activity, record
		)
		SELECT ${numbered("sequence")}, r.conversation_id, r.change, r.current, r.origin, ${numbered("previous_sequence")},
			r.received_at, ${numbered("base_sequence")}, r.size, r.redaction_version, r.schema_version, r.unpacked_size,
			r.checksum, substring($3::bytea FROM r.summary_at FOR r.summary_size),
			substring($3::bytea FROM r.activity_at FOR r.activity_size),
			substring($3::bytea FROM r.record_at FOR r.record_size)
		FROM p, json_to_recordset($4::json) AS r (
			sequence bigint, conversation_id uuid, change bigint, current boolean, origin bigint, previous_sequence bigint,
			received_at bigint, base_sequence bigint, size bigint, redaction_version bigint, schema_version bigint,
			unpacked_size bigint, checksum bigint, summary_at int, summary_size int, activity_at int, activity_size int,
			record_at int, record_size int
		)
	), new_events AS (
		INSERT INTO conversation_updates.events (
			sequence, conversation_id, event_id, received_at, happened_at, kind, source, size, redaction_version,
			unpacked_size, checksum, secrets, text
		)
		SELECT p.first_event + r.ordinal, r.conversation_id, r.event_id, r.received_at, r.happened_at, r.kind, r.source,
			r.size, r.redaction_version, r.unpacked_size, r.checksum, r.secrets,
			substring($3::bytea FROM r.text_at FOR r.text_size)
		FROM p, json_to_recordset($5::json) AS r (
			ordinal bigint, conversation_id uuid, event_id text, received_at bigint, happened_at bigint, kind text,
			source text, size bigint, redaction_version bigint, unpacked_size bigint, checksum bigint, secrets text,
			text_at int, text_size int
		)
	), new_currents AS (
		INSERT INTO conversation_updates.conversations (conversation_id, ${[...STATE_NAMES, ...FILTER_NAMES].join()})
		SELECT r.conversation_id, ${[...STATE_VALUES, ...FILTER_NAMES.map((name) => `r.${name}`)].join()}
		FROM p, json_to_recordset($6::json) AS r (
			conversation_id uuid, ${STATE}, agent_kind text, model text, parent_id text, created_at bigint, updated_at bigint
		)
		ON CONFLICT (conversation_id) DO UPDATE SET
			${[...STATE_NAMES, ...FILTER_NAMES].map((name) => `${name} = excluded.${name}`).join()}
	), new_states AS (
		UPDATE conversation_updates.conversations c SET ${STATE_NAMES.map((name, n) => `${name} = ${STATE_VALUES[n]}`).join()}
		FROM p, json_to_recordset($7::json) AS r (conversation_id uuid, ${STATE})
		WHERE c.conversation_id = r.conversation_id
	), new_tags AS (
		INSERT INTO conversation_updates.tags (conversation_id, key, value, sequence)
		SELECT r.conversation_id, r.key, r.value, ${numbered("sequence")}
		FROM p, json_to_recordset($8::json) AS r (conversation_id uuid, key text, value text, sequence bigint)
		ON CONFLICT (conversation_id, key) DO UPDATE SET value = excluded.value, sequence = excluded.sequence
	), writer AS (
		INSERT INTO conversation_updates.writers (id, last_group, first_update, first_event, written_at)
		SELECT $9::uuid, $10::bigint, p.first_update, p.first_event, now() FROM p
		ON CONFLICT (id) DO UPDATE SET
			last_group = excluded.last_group, first_update = excluded.first_update, first_event = excluded.first_event,
			written_at = excluded.written_at
	)
	SELECT p.first_update, p.first_event,
		CASE WHEN $11::boolean THEN pg_notify('${CHANNEL}', p.newest_update || ' ' || p.newest_event) END
	FROM p
`;

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
			secrets: event.secrets.length === 0 ? null : JSON.stringify(event.secrets),
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
