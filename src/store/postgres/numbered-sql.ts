/**
 * Numbers above this one are provisional: the final number is the newest one before the group plus the difference to this
 * one. Real sequences and revisions are not above it. So provisional sequences compare as greater than all real ones, as
 * the final sequences will.
 */
export const PROVISIONAL = 2n ** 62n;

/** Channel on which processes notify each other of new entries. */
export const CHANNEL = "conversation_updates";

/** Columns with the state of a conversation, and their types. */
const STATE = {
	sequence: "bigint",
	status: "bigint",
	order_time: "bigint",
	life_began_at: "bigint",
	created_at: "bigint",
	updated_at: "bigint",
	run_started_at: "bigint",
	newest_sequence: "bigint",
	newest_updated_at: "bigint",
	newest_size: "bigint",
	revision: "bigint",
	posted_at: "bigint",
	has_unapplied_events: "boolean",
	member_times: "text",
};
export const STATE_NAMES = Object.keys(STATE);
const STATE_ROW = Object.entries(STATE)
	.map((column) => column.join(" "))
	.join();
/** Columns that are written with the first record only. */
const ORIGIN_NAMES = ["sender", "owner"];
const PROVISIONAL_NAMES = ["sequence", "newest_sequence", "revision"];

/**
 * Columns of a row with an update. Members such as `summary_at` and `summary_size` locate its byte strings in one
 * parameter that all rows share.
 */
const UPDATE_ROW = `
	sequence bigint, conversation_id uuid, change bigint, current boolean, origin bigint, previous_sequence bigint,
	received_at bigint, base_sequence bigint, size bigint, redaction_version bigint, schema_version bigint,
	unpacked_size bigint, checksum bigint, error_sequence bigint, sender text, owner text, summary_at int, summary_size int, activity_at int,
	activity_size int, record_at int, record_size int
`;
/** Columns of a row with an event. */
const EVENT_ROW = `
	ordinal bigint, conversation_id uuid, event_id text, received_at bigint, happened_at bigint, kind text, source text,
	size bigint, redaction_version bigint, unpacked_size bigint, checksum bigint, secrets text, llm_response_id text,
	sender text, origin bigint, owner text, text_at int, text_size int
`;
/** Columns of a row with the head of a conversation. */
const HEAD_ROW = `conversation_id uuid, ${STATE_ROW}, source_id text, parent_id text, sender text, owner text`;

/** Returns the SQL for the value of a column of `r` that holds a sequence or a revision. */
type Numbered = (column: string) => string;

/** Source of the rows of an INSERT: the parameter with their JSON, and further items of the FROM clause. */
interface Rows {
	readonly json: string;
	readonly from?: string;
	readonly numbered: Numbered;
	/** As `numbered`, for sequences of events. */
	readonly numberedEvent?: Numbered;
	/** SQL for the owner of an update or an event. Default: a column of the row. */
	readonly owner?: string;
}

/** Returns the SQL that inserts updates. `bytes` is the parameter with their byte strings. */
export function insertUpdates(
	{ json, from = "", numbered, numberedEvent = numbered, owner = "r.owner" }: Rows,
	bytes: string,
): string {
	return `
		INSERT INTO conversation_updates.updates (
			sequence, conversation_id, change, current, origin, previous_sequence, received_at, base_sequence, size,
			redaction_version, schema_version, unpacked_size, checksum, error_sequence, sender, owner, summary,
			activity, record
		)
		SELECT ${numbered("sequence")}, r.conversation_id, r.change, r.current, r.origin, ${numbered("previous_sequence")},
			r.received_at, ${numbered("base_sequence")}, r.size, r.redaction_version, r.schema_version, r.unpacked_size,
			r.checksum, ${numberedEvent("error_sequence")}, r.sender, ${owner},
			substring(${bytes}::bytea FROM r.summary_at FOR r.summary_size),
			substring(${bytes}::bytea FROM r.activity_at FOR r.activity_size),
			substring(${bytes}::bytea FROM r.record_at FOR r.record_size)
		FROM ${from} json_to_recordset(${json}::json) AS r (${UPDATE_ROW})
	`;
}

/** Returns the SQL that inserts events. `bytes` is the parameter with their byte strings. */
export function insertEvents({ json, from = "", numbered, owner = "r.owner" }: Rows, bytes: string): string {
	return `
		INSERT INTO conversation_updates.events (
			sequence, conversation_id, event_id, received_at, happened_at, kind, source, size, redaction_version,
			unpacked_size, checksum, secrets, llm_response_id, sender, origin, owner, text
		)
		SELECT ${numbered("ordinal")}, r.conversation_id, r.event_id, r.received_at, r.happened_at, r.kind, r.source,
			r.size, r.redaction_version, r.unpacked_size, r.checksum, r.secrets, r.llm_response_id, r.sender, r.origin, ${owner},
			substring(${bytes}::bytea FROM r.text_at FOR r.text_size)
		FROM ${from} json_to_recordset(${json}::json) AS r (${EVENT_ROW})
	`;
}

/** Returns the SQL that inserts heads, or replaces existing ones. */
export function insertHeads({ json, from = "", numbered }: Rows): string {
	const names = [...STATE_NAMES, "source_id", "parent_id"];
	const others = ["source_id", "parent_id", ...ORIGIN_NAMES].map((name) => `r.${name}`);
	return `
		INSERT INTO conversation_updates.heads (conversation_id, ${[...names, ...ORIGIN_NAMES].join()})
		SELECT r.conversation_id, ${[...stateValues(numbered), ...others].join()}
		FROM ${from} json_to_recordset(${json}::json) AS r (${HEAD_ROW})
		ON CONFLICT (conversation_id) DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`).join()}
	`;
}

function stateValues(numbered: Numbered): string[] {
	return STATE_NAMES.map((name) => (PROVISIONAL_NAMES.includes(name) ? numbered(name) : `r.${name}`));
}

/** Returns the SQL for the final value of a column whose number may be provisional. */
function provisional(column: string, before = "first_update"): string {
	// A provisional position of a conversation without a record is the number of its newest event less 2^63.
	const position = `WHEN r.${column} < 0 AND r.${column} > -${PROVISIONAL} THEN p.first_event + r.${column} - ${PROVISIONAL}`;
	return `
		CASE WHEN r.${column} > ${PROVISIONAL} THEN p.${before} + (r.${column} - ${PROVISIONAL})
			${column === "sequence" ? position : ""} ELSE r.${column} END
	`;
}

/** Rows of a group. Their final numbers are computed from the row `p` of {@link WRITE_GROUP}. */
const groupRows = (json: string, numbered: Numbered = (column) => provisional(column)): Rows => ({
	json,
	from: "p,",
	numbered,
	numberedEvent: (column) => provisional(column, "first_event"),
});

/**
 * The statement that takes the sequences of a group and writes all rows that contain them. It locks the row of `positions`
 * until the transaction ends, so it is the last statement. It fails for a group that its writer has given up, because
 * `last_group` cannot be null.
 */
export const WRITE_GROUP = `
	WITH p AS (
		UPDATE conversation_updates.positions
		SET newest_update = newest_update + $1::bigint, newest_event = newest_event + $2::bigint
		RETURNING newest_update - $1::bigint AS first_update, newest_event - $2::bigint AS first_event,
			newest_update, newest_event
	), new_updates AS (
		${insertUpdates(groupRows("$4"), "$3")}
	), new_events AS (
		${insertEvents(
			groupRows("$5", (column) => `p.first_event + r.${column}`),
			"$3",
		)}
	), new_heads AS (
		${insertHeads(groupRows("$6"))}
	), new_errors AS (
		UPDATE conversation_updates.activities r SET error_sequence = ${provisional("error_sequence", "first_event")}
		FROM p WHERE r.conversation_id = ANY ($10::uuid[])
	), writer AS (
		INSERT INTO conversation_updates.writers (id, last_group, first_update, first_event, written_at)
		SELECT $7::uuid, $8::bigint, p.first_update, p.first_event, now() FROM p
		ON CONFLICT (id) DO UPDATE SET
			last_group = CASE WHEN writers.last_group < excluded.last_group THEN excluded.last_group END,
			first_update = excluded.first_update, first_event = excluded.first_event, written_at = excluded.written_at
	)
	SELECT p.first_update, p.first_event,
		CASE WHEN $9::boolean THEN pg_notify('${CHANNEL}', p.newest_update || ' ' || p.newest_event) END
	FROM p
`;
