import type { DatabaseSync } from "node:sqlite";
import { integer } from "../values.ts";

/** Version of the schema, which SQLite keeps as `user_version`. */
export const SCHEMA_VERSION = 4;

/** Tells that a database is of this service: "CUWS" (https://www.sqlite.org/pragma.html#pragma_application_id). */
export const APPLICATION_ID = 0x43555753;

/** The last schema version whose databases have no application id. They are known by their tables. */
const LAST_WITHOUT_ID = 3;
const TABLES_WITHOUT_ID = [
	"store_state",
	"logs",
	"updates",
	"conversations",
	"tags",
	"titles",
	"activities",
	"events",
	"pruned",
];

/**
 * `updates` holds every update with its record. A column behind `record` would be expensive to read, because long
 * records lie on pages of their own. When `base_sequence` is set, `record` is a delta (record-delta.ts) over the record
 * of that update, which is whole. `size` is that of the whole record, or a little more. `activity` has the activity's
 * fields of the summary when the update was written.
 *
 * `conversations` has a row for each conversation: what the next update is judged by, and what lists filter by, taken
 * from the summary of the current record. Each index of it that serves a filter for equality ends in `sequence`, so that
 * it gives its conversations in the order of lists. `order_time` is what records are ordered by (see ordering.ts). The
 * columns that begin with `newest` are about the newest posted update, and `revision`, `told`, `posted_at` and
 * `has_unapplied_events` are those of `LiveState`.
 * `tags` holds the tags of the current record; `conversations.tags` the same as JSON, to see whether they change.
 * `titles` has the row ids of `conversations`, and which trigrams their titles have.
 *
 * `activities` has a row for each conversation of which events came, also when it has no record. `events` has its row
 * ids. Both indexes of `events` begin with them, so that a batch touches few pages however many events there are.
 *
 * `store_state.clock` is the time of retention (see `Store.keepClock`).
 *
 * `logs` and `pruned` are about both numbered tables, which `log` names. Sequences up to `skipped_through` are not given:
 * they may have been given to entries that a damaged write-ahead log has lost. `pruned` has a row for each conversation of
 * which entries were pruned, also when the conversation is gone.
 */
const SCHEMA = `
	CREATE TABLE store_state (
		id INTEGER PRIMARY KEY CHECK (id = 1),
		checks INTEGER NOT NULL,
		clock INTEGER
	) STRICT;
	INSERT INTO store_state VALUES (1, 0, NULL);

	CREATE TABLE logs (
		log TEXT PRIMARY KEY,
		pruned_through INTEGER NOT NULL,
		last_removal INTEGER NOT NULL,
		skipped_through INTEGER NOT NULL
	) STRICT, WITHOUT ROWID;
	INSERT INTO logs VALUES ('updates', 0, 0, 0), ('events', 0, 0, 0);

	CREATE TABLE updates (
		sequence INTEGER PRIMARY KEY,
		conversation INTEGER NOT NULL,
		change INTEGER NOT NULL,
		current INTEGER NOT NULL,
		previous_sequence INTEGER,
		received_at INTEGER NOT NULL,
		origin INTEGER NOT NULL,
		base_sequence INTEGER,
		size INTEGER NOT NULL,
		redaction_version INTEGER NOT NULL,
		schema_version INTEGER NOT NULL,
		unpacked_size INTEGER,
		checksum INTEGER NOT NULL,
		summary BLOB NOT NULL,
		activity BLOB,
		record BLOB NOT NULL
	) STRICT;
	CREATE INDEX updates_by_conversation ON updates (conversation);
	CREATE INDEX updates_by_base ON updates (base_sequence) WHERE base_sequence IS NOT NULL;

	CREATE TABLE conversations (
		id INTEGER PRIMARY KEY,
		conversation_id TEXT NOT NULL UNIQUE,
		sequence INTEGER NOT NULL,
		order_time INTEGER,
		newest_sequence INTEGER,
		newest_updated_at INTEGER,
		newest_size INTEGER,
		status INTEGER NOT NULL,
		agent_kind TEXT NOT NULL,
		model TEXT NOT NULL,
		parent_id TEXT,
		created_at INTEGER,
		updated_at INTEGER,
		title TEXT,
		tags TEXT NOT NULL,
		revision INTEGER NOT NULL,
		posted_at INTEGER,
		has_unapplied_events INTEGER NOT NULL,
		told TEXT
	) STRICT;
	CREATE UNIQUE INDEX conversations_by_sequence ON conversations (sequence);
	CREATE INDEX conversations_by_status ON conversations (status, sequence);
	CREATE INDEX conversations_by_agent_kind ON conversations (agent_kind, sequence);
	CREATE INDEX conversations_by_model ON conversations (model, sequence);
	CREATE INDEX conversations_by_parent ON conversations (parent_id, sequence) WHERE parent_id IS NOT NULL;
	CREATE INDEX conversations_by_created ON conversations (created_at) WHERE created_at IS NOT NULL;
	CREATE INDEX conversations_by_updated ON conversations (updated_at) WHERE updated_at IS NOT NULL;
	CREATE INDEX conversations_unapplied ON conversations (id) WHERE has_unapplied_events = 1;

	CREATE TABLE tags (
		conversation INTEGER NOT NULL,
		key TEXT NOT NULL,
		value TEXT NOT NULL,
		sequence INTEGER NOT NULL,
		PRIMARY KEY (conversation, key)
	) STRICT, WITHOUT ROWID;
	CREATE INDEX tags_by_key ON tags (key, sequence);
	CREATE INDEX tags_by_value ON tags (key, value, sequence);

	CREATE VIRTUAL TABLE titles USING fts5 (
		title, content = '', contentless_delete = 1, detail = none, tokenize = 'trigram'
	);

	CREATE TABLE activities (
		id INTEGER PRIMARY KEY,
		conversation_id TEXT NOT NULL UNIQUE,
		event_count INTEGER NOT NULL,
		last_at INTEGER NOT NULL,
		told_at INTEGER,
		leaf_at INTEGER,
		leaf TEXT,
		message_at INTEGER,
		message TEXT
	) STRICT;

	CREATE TABLE events (
		sequence INTEGER PRIMARY KEY,
		activity INTEGER NOT NULL,
		event_id TEXT NOT NULL,
		received_at INTEGER NOT NULL,
		happened_at INTEGER NOT NULL,
		kind TEXT NOT NULL,
		source TEXT NOT NULL,
		redaction_version INTEGER NOT NULL,
		unpacked_size INTEGER,
		checksum INTEGER NOT NULL,
		secrets TEXT,
		text BLOB NOT NULL
	) STRICT;
	CREATE INDEX events_by_activity ON events (activity);
	CREATE UNIQUE INDEX events_by_id ON events (activity, event_id);

	CREATE TABLE pruned (
		log TEXT NOT NULL,
		conversation_id TEXT NOT NULL,
		through INTEGER NOT NULL,
		removal INTEGER NOT NULL,
		PRIMARY KEY (log, conversation_id)
	) STRICT, WITHOUT ROWID;
	CREATE INDEX pruned_by_removal ON pruned (log, removal, through);

	PRAGMA application_id = ${APPLICATION_ID};
	PRAGMA user_version = ${SCHEMA_VERSION};
`;

/** For each version before the present one, what makes a later version of it. */
const UPGRADES: readonly string[] = [
	SCHEMA,
	`
		ALTER TABLE store_state ADD COLUMN clock INTEGER;
		ALTER TABLE logs ADD COLUMN skipped_through INTEGER NOT NULL DEFAULT 0;
		PRAGMA user_version = 2;
	`,
	`
		ALTER TABLE conversations RENAME COLUMN is_behind TO has_unapplied_events;
		DROP INDEX conversations_behind;
		CREATE INDEX conversations_unapplied ON conversations (id) WHERE has_unapplied_events = 1;
		PRAGMA user_version = 3;
	`,
	`
		PRAGMA application_id = ${APPLICATION_ID};
		PRAGMA user_version = 4;
	`,
];

/**
 * Creates the tables in an empty database, and upgrades those of an earlier version, inside a transaction that the caller
 * holds.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program
 */
export function createSchema(database: DatabaseSync): void {
	for (const upgrade of UPGRADES.slice(schemaVersion(database))) {
		database.exec(upgrade);
		if (schemaVersion(database) === SCHEMA_VERSION) return;
	}
}

/**
 * Version of a database's schema; 0 when it is empty.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program
 */
export function schemaVersion(database: DatabaseSync): number {
	const pragma = (name: "application_id" | "user_version") =>
		integer(database.prepare(`PRAGMA ${name}`, { readBigInts: true }).get()?.[name]);
	const [id, version] = [pragma("application_id"), pragma("user_version")];
	const tables = new Set(
		database
			.prepare("SELECT name FROM sqlite_schema")
			.all()
			.map(({ name }) => name),
	);
	if (id === 0 && version === 0 && tables.size === 0) return 0;
	const isOwn =
		id === APPLICATION_ID
			? version > LAST_WITHOUT_ID
			: id === 0 && version >= 1 && version <= LAST_WITHOUT_ID && TABLES_WITHOUT_ID.every((name) => tables.has(name));
	if (!isOwn) throw new Error("the file is a database of another program");
	if (version > SCHEMA_VERSION)
		throw new Error(
			`the database has schema version ${version}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
		);
	return version;
}
