import type { DatabaseSync } from "node:sqlite";
import { asNumbers } from "./database.ts";
import { integer } from "./values.ts";

/**
 * Steps from an empty database to the present schema; the n-th leads to version n, which SQLite keeps as
 * `user_version`. A step that was released is never edited.
 *
 * Each record is stored once, in `updates`. Of each conversation `heads` holds what the next update is judged by. What
 * lists read, `conversations` with `tags` and `titles`, follows behind, up to `listed_through` and maybe further; each
 * update carries what is listed of it. `heads` points at the current record by its sequence, `conversations` at the one
 * that was current when it was listed.
 *
 * Every index that serves a filter ends in that sequence, so that it yields its matches newest first. The buckets are
 * periods of 2^36 microseconds (19 hours): a range of times is a merge of few buckets, each of them in order of
 * sequence. The index of titles holds only which trigrams a title has, and merges its segments half as often as by
 * default.
 *
 * The index that finds repetitions begins with the record's own time, so that its entries come in about the order in
 * which they are stored, all at its end. `digest` is empty where the record itself tells, and `digest_prefix` is then a
 * checksum of it; version 1 took the SHA-256 of such a record, and did not know `updated_at`.
 */
export const migrations: readonly string[] = [
	`
	CREATE TABLE store_state (
		id INTEGER PRIMARY KEY CHECK (id = 1),
		pruned_through INTEGER NOT NULL,
		probes INTEGER NOT NULL
	) STRICT;
	INSERT INTO store_state VALUES (1, 0, 0);

	CREATE TABLE updates (
		sequence INTEGER PRIMARY KEY,
		conversation INTEGER NOT NULL,
		change TEXT NOT NULL,
		current INTEGER NOT NULL,
		previous_sequence INTEGER,
		received_at INTEGER NOT NULL,
		digest_prefix INTEGER NOT NULL,
		digest BLOB NOT NULL,
		unpacked_size INTEGER,
		record BLOB NOT NULL
	) STRICT;
	CREATE INDEX updates_by_conversation ON updates (conversation);
	CREATE INDEX updates_by_digest ON updates (conversation, digest_prefix);

	CREATE TABLE conversations (
		id INTEGER PRIMARY KEY,
		conversation_id BLOB NOT NULL UNIQUE,
		sequence INTEGER NOT NULL,
		status TEXT NOT NULL,
		agent_kind TEXT NOT NULL,
		model TEXT NOT NULL,
		parent_id TEXT,
		created_at INTEGER,
		updated_at INTEGER,
		created_bucket INTEGER AS (created_at >> 36) VIRTUAL,
		updated_bucket INTEGER AS (updated_at >> 36) VIRTUAL,
		title TEXT,
		tags TEXT NOT NULL,
		summary BLOB NOT NULL
	) STRICT;
	CREATE INDEX conversations_by_sequence ON conversations (sequence);
	CREATE INDEX conversations_by_status ON conversations (status, sequence);
	CREATE INDEX conversations_by_agent_kind ON conversations (agent_kind, sequence);
	CREATE INDEX conversations_by_model ON conversations (model, sequence);
	CREATE INDEX conversations_by_parent ON conversations (parent_id, sequence) WHERE parent_id IS NOT NULL;
	CREATE INDEX conversations_by_created ON conversations (created_bucket, sequence, created_at)
		WHERE created_at IS NOT NULL;
	CREATE INDEX conversations_by_updated ON conversations (updated_bucket, sequence, updated_at)
		WHERE updated_at IS NOT NULL;

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
	INSERT INTO titles (titles, rank) VALUES ('automerge', 8);
	`,
	`
	ALTER TABLE updates ADD COLUMN updated_at INTEGER;
	ALTER TABLE updates ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE store_state ADD COLUMN version_1_through INTEGER NOT NULL DEFAULT 0;
	UPDATE store_state SET version_1_through = (SELECT coalesce(max(sequence), 0) FROM updates);
	DROP INDEX updates_by_digest;
	CREATE INDEX updates_by_digest ON updates (updated_at, digest_prefix);
	`,
	`
	CREATE TABLE heads (
		id INTEGER PRIMARY KEY,
		conversation_id BLOB NOT NULL UNIQUE,
		sequence INTEGER NOT NULL,
		status TEXT NOT NULL,
		updated_at INTEGER
	) STRICT;
	INSERT INTO heads SELECT id, conversation_id, sequence, status, updated_at FROM conversations;
	ALTER TABLE updates ADD COLUMN columns BLOB NOT NULL DEFAULT x'';
	ALTER TABLE updates ADD COLUMN summary BLOB NOT NULL DEFAULT x'';
	ALTER TABLE store_state ADD COLUMN listed_through INTEGER NOT NULL DEFAULT 0;
	UPDATE store_state SET listed_through = (SELECT coalesce(max(sequence), 0) FROM updates);
	`,
];

/**
 * Brings a database to the newest version.
 *
 * @throws Error when a newer version of the service wrote it, or when it belongs to another program.
 */
export function migrate(database: DatabaseSync, steps: readonly string[] = migrations): void {
	if (versionOf(database) === steps.length) return;
	// Taking the write lock first keeps two processes that start at once from running the same step.
	database.exec("BEGIN IMMEDIATE");
	try {
		const version = versionOf(database);
		if (version > steps.length) {
			throw new Error(
				`the database has schema version ${version}, written by a newer release; this one knows up to ${steps.length}`,
			);
		}
		if (version === 0 && database.prepare("SELECT 1 FROM sqlite_schema LIMIT 1").get() !== undefined) {
			throw new Error("the file is a database of another program");
		}
		for (const step of steps.slice(version)) database.exec(step);
		database.exec(`PRAGMA user_version = ${steps.length}`);
		database.exec("COMMIT");
	} catch (error) {
		if (database.isTransaction) database.exec("ROLLBACK");
		throw error;
	}
}

function versionOf(database: DatabaseSync): number {
	return integer(database.prepare("PRAGMA user_version", asNumbers).get()?.user_version);
}
