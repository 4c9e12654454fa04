import type { DatabaseSync } from "node:sqlite";
import { integer } from "../values.ts";

/** Version of the schema, stored as `user_version`. */
export const SCHEMA_VERSION = 4;

/** Marks a database as this service's: "CUWS" (https://www.sqlite.org/pragma.html#pragma_application_id). */
export const APPLICATION_ID = 0x43555753;

/** Last schema version without an application id. Databases up to this version are recognized by their tables. */
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
 * `updates` has every update with its record. A column after `record` would be slow to read, because long records are
 * on overflow pages. When `base_sequence` is set, `record` is a delta (record-delta.ts) whose base is the whole record
 * of that update. `size` is the size of the whole record, or slightly more. `activity` has the summary's fields of the
 * activity as they were when the update was written.
 *
 * `conversations` has a row for each conversation with a record: the state against which the next update is judged, and
 * the columns that lists filter by, taken from the summary of the current record. Each index for an equality filter
 * ends in `sequence`, so that it returns conversations in list order. Records are ordered by `order_time` (see
 * ordering.ts). The columns whose names begin with `newest` describe the newest posted update. `revision`, `told`,
 * `posted_at` and `has_unapplied_events` are those of `LiveState`.
 *
 * `tags` has the tags of the current record. `conversations.tags` has the same tags as JSON, to detect changes.
 * `titles` is the trigram index of the titles; its row ids are those of `conversations`.
 *
 * `activities` has a row for each conversation with events, also if it has no record. `events` refers to its row ids.
 * Both indexes of `events` begin with that id, so that a batch touches few pages however many events there are.
 *
 * `store_state.clock` is the time of retention (see `Store.saveRetentionTime`).
 *
 * The column `log` of `logs` and `pruned` is `updates` or `events`. Sequence numbers up to `skipped_through` are never
 * assigned: entries that were lost with a damaged write-ahead log may have had them. `pruned` has a row for each
 * conversation whose entries were pruned, also after the conversation itself was removed.
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

/**
 * SQL of the upgrade from each earlier version, by that version; 0 is an empty database. An upgrade may skip versions.
 */
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
 * Creates the tables in an empty database, or upgrades those of an earlier version. The caller has begun a transaction.
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
 * Returns the schema version of a database; 0 when the database is empty.
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
