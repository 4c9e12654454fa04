/**
 * A number above this one is provisional: it stands for the newest number when the group is written, plus the difference.
 * Sequences and revisions are not above it, and provisional ones are greater than all others, as they will be.
 */
export const PROVISIONAL = 2n ** 62n;

/** The channel on which processes tell each other of new entries. */
export const CHANNEL = "conversation_updates";

/** The columns with the state of a conversation, and their types. */
const STATE = {
	sequence: "bigint",
	status: "bigint",
	order_time: "bigint",
	newest_sequence: "bigint",
	newest_updated_at: "bigint",
	newest_size: "bigint",
	revision: "bigint",
	posted_at: "bigint",
	has_unapplied_events: "boolean",
	told: "text",
};
export const STATE_NAMES = Object.keys(STATE);
const STATE_ROW = Object.entries(STATE)
	.map((column) => column.join(" "))
	.join();
const FILTER_NAMES = ["agent_kind", "model", "parent_id", "created_at", "updated_at"];
const PROVISIONAL_NAMES = ["sequence", "newest_sequence", "revision"];

/** Columns of a row with an update, whose byte strings are at places in one that all rows share. */
const UPDATE_ROW = `
	sequence bigint, conversation_id uuid, change bigint, current boolean, origin bigint, previous_sequence bigint,
	received_at bigint, base_sequence bigint, size bigint, redaction_version bigint, schema_version bigint,
	unpacked_size bigint, checksum bigint, summary_at int, summary_size int, activity_at int, activity_size int,
	record_at int, record_size int
`;
/** Columns of a row with an event. */
const EVENT_ROW = `
	ordinal bigint, conversation_id uuid, event_id text, received_at bigint, happened_at bigint, kind text, source text,
	size bigint, redaction_version bigint, unpacked_size bigint, checksum bigint, secrets text, text_at int, text_size int
`;
/** Columns of a row with the state of a conversation and what lists filter by. */
const CURRENT_ROW = `
	conversation_id uuid, ${STATE_ROW}, agent_kind text, model text, parent_id text, created_at bigint, updated_at bigint
`;
const TAG_ROW = "conversation_id uuid, key text, value text, sequence bigint";

/** Gives SQL for the value of a column of `r` that has a number. */
type Numbered = (column: string) => string;

/** Where the rows of an INSERT are: a parameter with JSON, and what else its SELECT is from. */
interface Rows {
	readonly json: string;
	readonly from?: string;
	readonly numbered: Numbered;
}

/** SQL that inserts updates. @param bytes the parameter with the byte strings */
export function insertUpdates({ json, from = "", numbered }: Rows, bytes: string): string {
	return `
		INSERT INTO conversation_updates.updates (
			sequence, conversation_id, change, current, origin, previous_sequence, received_at, base_sequence, size,
			redaction_version, schema_version, unpacked_size, checksum, summary, activity, record
		)
		SELECT ${numbered("sequence")}, r.conversation_id, r.change, r.current, r.origin, ${numbered("previous_sequence")},
			r.received_at, ${numbered("base_sequence")}, r.size, r.redaction_version, r.schema_version, r.unpacked_size,
			r.checksum, substring(${bytes}::bytea FROM r.summary_at FOR r.summary_size),
			substring(${bytes}::bytea FROM r.activity_at FOR r.activity_size),
			substring(${bytes}::bytea FROM r.record_at FOR r.record_size)
		FROM ${from} json_to_recordset(${json}::json) AS r (${UPDATE_ROW})
	`;
}

/** SQL that inserts events. @param bytes the parameter with the byte strings */
export function insertEvents({ json, from = "", numbered }: Rows, bytes: string): string {
	return `
		INSERT INTO conversation_updates.events (
			sequence, conversation_id, event_id, received_at, happened_at, kind, source, size, redaction_version,
			unpacked_size, checksum, secrets, text
		)
		SELECT ${numbered("ordinal")}, r.conversation_id, r.event_id, r.received_at, r.happened_at, r.kind, r.source,
			r.size, r.redaction_version, r.unpacked_size, r.checksum, r.secrets,
			substring(${bytes}::bytea FROM r.text_at FOR r.text_size)
		FROM ${from} json_to_recordset(${json}::json) AS r (${EVENT_ROW})
	`;
}

/** SQL that inserts conversations, or gives those that are there another current record. */
export function insertCurrents({ json, from = "", numbered }: Rows): string {
	const names = [...STATE_NAMES, ...FILTER_NAMES];
	return `
		INSERT INTO conversation_updates.conversations (conversation_id, ${names.join()})
		SELECT r.conversation_id, ${[...stateValues(numbered), ...FILTER_NAMES.map((name) => `r.${name}`)].join()}
		FROM ${from} json_to_recordset(${json}::json) AS r (${CURRENT_ROW})
		ON CONFLICT (conversation_id) DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`).join()}
	`;
}

/** SQL that inserts tags, or gives those that are there another value. */
export function insertTags({ json, from = "", numbered }: Rows): string {
	return `
		INSERT INTO conversation_updates.tags (conversation_id, key, value, sequence)
		SELECT r.conversation_id, r.key, r.value, ${numbered("sequence")}
		FROM ${from} json_to_recordset(${json}::json) AS r (${TAG_ROW})
		ON CONFLICT (conversation_id, key) DO UPDATE SET value = excluded.value, sequence = excluded.sequence
	`;
}

function stateValues(numbered: Numbered): string[] {
	return STATE_NAMES.map((name) => (PROVISIONAL_NAMES.includes(name) ? numbered(name) : `r.${name}`));
}

/** The value of a column whose number may be provisional. */
function provisional(column: string): string {
	return `CASE WHEN r.${column} > ${PROVISIONAL} THEN p.first_update + (r.${column} - ${PROVISIONAL}) ELSE r.${column} END`;
}

/** The rows of a group, whose numbers follow those that `p` has taken. */
const ofGroup = (json: string, numbered: Numbered = provisional): Rows => ({ json, from: "p,", numbered });

/**
 * The statement that takes the numbers and writes all that has them. It locks the row of `positions` until the transaction
 * ends, so it is the last one. For a group that its writer has given up it fails: `last_group` cannot be null.
 */
export const NUMBERED = `
	WITH p AS (
		UPDATE conversation_updates.positions
		SET newest_update = newest_update + $1::bigint, newest_event = newest_event + $2::bigint
		RETURNING newest_update - $1::bigint AS first_update, newest_event - $2::bigint AS first_event,
			newest_update, newest_event
	), new_updates AS (
		${insertUpdates(ofGroup("$4"), "$3")}
	), new_events AS (
		${insertEvents(
			ofGroup("$5", (column) => `p.first_event + r.${column}`),
			"$3",
		)}
	), new_currents AS (
		${insertCurrents(ofGroup("$6"))}
	), new_states AS (
		UPDATE conversation_updates.conversations c
		SET ${stateValues(provisional)
			.map((value, n) => `${STATE_NAMES[n]} = ${value}`)
			.join()}
		FROM p, json_to_recordset($7::json) AS r (conversation_id uuid, ${STATE_ROW})
		WHERE c.conversation_id = r.conversation_id
	), new_tags AS (
		${insertTags(ofGroup("$8"))}
	), writer AS (
		INSERT INTO conversation_updates.writers (id, last_group, first_update, first_event, written_at)
		SELECT $9::uuid, $10::bigint, p.first_update, p.first_event, now() FROM p
		ON CONFLICT (id) DO UPDATE SET
			last_group = CASE WHEN writers.last_group < excluded.last_group THEN excluded.last_group END,
			first_update = excluded.first_update, first_event = excluded.first_event, written_at = excluded.written_at
	)
	SELECT p.first_update, p.first_event,
		CASE WHEN $11::boolean THEN pg_notify('${CHANNEL}', p.newest_update || ' ' || p.newest_event) END
	FROM p
`;
