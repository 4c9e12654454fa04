import type { DatabaseSync } from "node:sqlite";
import { integer } from "./values.ts";

/** Version of the schema, which SQLite keeps as `user_version`. */
export const SCHEMA_VERSION = 1;

/**
 * `updates` holds every update with its record. A column behind `record` would be expensive to read, because long
 * records lie on pages of their own.
 *
 * `conversations` has a row for each conversation: what the next update is judged by, and what lists filter by, taken
 * from the summary of the current record. Each index of it that serves a filter for equality ends in `sequence`, so that
 * it gives its conversations in the order of lists. `order_time` is what records are ordered by (see ordering.ts).
 * `tags` holds the tags of the current record; `conversations.tags` the same as JSON, to see whether they change.
 * `titles` has the row ids of `conversations`, and which trigrams their titles have.
 *
 * `pruned` has a row for each conversation of which updates were pruned, also when the conversation is gone.
 */
const SCHEMA = `
	CREATE TABLE store_state (
		id INTEGER PRIMARY KEY CHECK (id = 1),
		pruned_through INTEGER NOT NULL,
		last_removal INTEGER NOT NULL,
		checks INTEGER NOT NULL
	) STRICT;
	INSERT INTO store_state VALUES (1, 0, 0, 0);

	CREATE TABLE updates (
		sequence INTEGER PRIMARY KEY,
		conversation INTEGER NOT NULL,
		change INTEGER NOT NULL,
		current INTEGER NOT NULL,
		previous_sequence INTEGER,
		received_at INTEGER NOT NULL,
		redaction_version INTEGER NOT NULL,
		schema_version INTEGER NOT NULL,
		unpacked_size INTEGER,
		checksum INTEGER NOT NULL,
		summary BLOB NOT NULL,
		record BLOB NOT NULL
	) STRICT;
	CREATE INDEX updates_by_conversation ON updates (conversation);

	CREATE TABLE conversations (
		id INTEGER PRIMARY KEY,
		conversation_id TEXT NOT NULL UNIQUE,
		sequence INTEGER NOT NULL,
		order_time INTEGER,
		newest_sequence INTEGER NOT NULL,
		newest_updated_at INTEGER,
		newest_size INTEGER NOT NULL,
		status INTEGER NOT NULL,
		agent_kind TEXT NOT NULL,
		model TEXT NOT NULL,
		parent_id TEXT,
		created_at INTEGER,
		updated_at INTEGER,
		title TEXT,
		tags TEXT NOT NULL
	) STRICT;
	CREATE UNIQUE INDEX conversations_by_sequence ON conversations (sequence);
	CREATE INDEX conversations_by_status ON conversations (status, sequence);
	CREATE INDEX conversations_by_agent_kind ON conversations (agent_kind, sequence);
	CREATE INDEX conversations_by_model ON conversations (model, sequence);
	CREATE INDEX conversations_by_parent ON conversations (parent_id, sequence) WHERE parent_id IS NOT NULL;
	CREATE INDEX conversations_by_created ON conversations (created_at) WHERE created_at IS NOT NULL;
	CREATE INDEX conversations_by_updated ON conversations (updated_at) WHERE updated_at IS NOT NULL;

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

	CREATE TABLE pruned (
		conversation_id TEXT PRIMARY KEY,
		through INTEGER NOT NULL,
		removal INTEGER NOT NULL
	) STRICT, WITHOUT ROWID;
	CREATE INDEX pruned_by_removal ON pruned (removal, through);

	PRAGMA user_version = ${SCHEMA_VERSION};
`;

/**
 * Creates the tables in an empty database.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program
 */
export function createSchema(database: DatabaseSync): void {
	if (schemaVersion(database) === 0) database.exec(SCHEMA);
}

/**
 * Version of a database's schema; 0 when it is empty.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program
 */
export function schemaVersion(database: DatabaseSync): number {
	const version = integer(database.prepare("PRAGMA user_version", { readBigInts: true }).get()?.user_version);
	if (version > SCHEMA_VERSION)
		throw new Error(
			`the database has schema version ${version}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
		);
	if (version === 0 && database.prepare("SELECT 1 FROM sqlite_schema LIMIT 1").get() !== undefined)
		throw new Error("the file is a database of another program");
	return version;
}
