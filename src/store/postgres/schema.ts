/**
 * The tables. They have a schema of their own, apart from the tables of other programs, and every statement names it.
 *
 * `positions` has one row with the newest sequence of each log. A transaction that appends takes its sequences from this
 * row, which stays locked until the transaction has committed. So the order of sequences is the order of commits.
 *
 * `updates`, `conversations`, `tags`, `activities` and `events` hold the same as the tables of these names in the SQLite
 * engine. Times are microseconds since the Unix epoch. Records and texts of events have STORAGE EXTERNAL, so PostgreSQL
 * does not compress them: the service itself compresses large ones. Other texts are stored in the form of stored-text.ts
 * and compared byte by byte. Titles have a table of their own, `titles`, so that their index is written only when a title
 * changes. They have lower-case ASCII letters.
 *
 * Each row of `tags` has the sequence of its conversation's current update.
 *
 * `pruned` has a row for each conversation of which entries were pruned, also when the conversation is gone. `removals`
 * says how far each log was pruned. `retention.clock` is the time of retention (see `Store.saveRetentionTime`).
 *
 * `writers` has a row for each group committer of each running service, about its last group. If the group was committed,
 * `last_group` is its number, which is even, and `first_update` and `first_event` are the newest sequences before it. If
 * the group was given up, `last_group` is its number plus 1.
 *
 * `unfinished_copy` has a row until a copy from another database is complete. The row describes the contents of the
 * source.
 */
const TABLES = `
	CREATE TABLE conversation_updates.positions (
		id bigint PRIMARY KEY CHECK (id = 1),
		newest_update bigint NOT NULL,
		newest_event bigint NOT NULL
	) WITH (fillfactor = 10);
	INSERT INTO conversation_updates.positions VALUES (1, 0, 0);

	CREATE TABLE conversation_updates.removals (
		log text PRIMARY KEY,
		pruned_through bigint NOT NULL,
		last_removal bigint NOT NULL
	) WITH (fillfactor = 10);
	INSERT INTO conversation_updates.removals VALUES ('updates', 0, 0), ('events', 0, 0);

	CREATE TABLE conversation_updates.writers (
		id uuid PRIMARY KEY,
		last_group bigint NOT NULL,
		first_update bigint NOT NULL,
		first_event bigint NOT NULL,
		written_at timestamptz NOT NULL
	) WITH (fillfactor = 10);

	CREATE TABLE conversation_updates.updates (
		sequence bigint PRIMARY KEY,
		conversation_id uuid NOT NULL,
		change bigint NOT NULL,
		current boolean NOT NULL,
		origin bigint NOT NULL,
		previous_sequence bigint,
		received_at bigint NOT NULL,
		base_sequence bigint,
		size bigint NOT NULL,
		redaction_version bigint NOT NULL,
		schema_version bigint NOT NULL,
		unpacked_size bigint,
		checksum bigint NOT NULL,
		summary bytea NOT NULL,
		activity bytea,
		record bytea NOT NULL
	);
	ALTER TABLE conversation_updates.updates ALTER COLUMN record SET STORAGE EXTERNAL;
	CREATE INDEX updates_by_conversation ON conversation_updates.updates (conversation_id, sequence);
	CREATE INDEX updates_by_base ON conversation_updates.updates (base_sequence) WHERE base_sequence IS NOT NULL;

	CREATE TABLE conversation_updates.conversations (
		conversation_id uuid PRIMARY KEY,
		sequence bigint NOT NULL,
		status bigint NOT NULL,
		order_time bigint,
		newest_sequence bigint,
		newest_updated_at bigint,
		newest_size bigint,
		revision bigint NOT NULL,
		posted_at bigint,
		is_behind boolean NOT NULL,
		told text,
		agent_kind text COLLATE "C" NOT NULL,
		model text COLLATE "C" NOT NULL,
		parent_id text COLLATE "C",
		created_at bigint,
		updated_at bigint
	) WITH (fillfactor = 80);
	CREATE UNIQUE INDEX conversations_by_sequence ON conversation_updates.conversations (sequence);
	CREATE INDEX conversations_by_status ON conversation_updates.conversations (status, sequence);
	CREATE INDEX conversations_by_agent_kind ON conversation_updates.conversations (agent_kind, sequence);
	CREATE INDEX conversations_by_model ON conversation_updates.conversations (model, sequence);
	CREATE INDEX conversations_by_parent ON conversation_updates.conversations (parent_id, sequence)
		WHERE parent_id IS NOT NULL;
	CREATE INDEX conversations_by_created ON conversation_updates.conversations (created_at) WHERE created_at IS NOT NULL;
	CREATE INDEX conversations_by_updated ON conversation_updates.conversations (updated_at) WHERE updated_at IS NOT NULL;
	CREATE INDEX conversations_behind ON conversation_updates.conversations (conversation_id) WHERE is_behind;

	CREATE TABLE conversation_updates.tags (
		conversation_id uuid NOT NULL,
		key text COLLATE "C" NOT NULL,
		value text COLLATE "C" NOT NULL,
		sequence bigint NOT NULL,
		PRIMARY KEY (conversation_id, key)
	) WITH (fillfactor = 80);
	CREATE INDEX tags_by_key ON conversation_updates.tags (key, sequence);
	CREATE INDEX tags_by_value ON conversation_updates.tags (key, value, sequence);

	CREATE TABLE conversation_updates.titles (
		conversation_id uuid PRIMARY KEY,
		title text COLLATE "C" NOT NULL
	);

	CREATE TABLE conversation_updates.activities (
		conversation_id uuid PRIMARY KEY,
		event_count bigint NOT NULL,
		last_at bigint NOT NULL,
		told_at bigint,
		leaf_at bigint,
		leaf text,
		message_at bigint,
		message text
	) WITH (fillfactor = 70);

	CREATE TABLE conversation_updates.events (
		sequence bigint PRIMARY KEY,
		conversation_id uuid NOT NULL,
		event_id text COLLATE "C" NOT NULL,
		received_at bigint NOT NULL,
		happened_at bigint NOT NULL,
		kind text COLLATE "C" NOT NULL,
		source text COLLATE "C" NOT NULL,
		size bigint NOT NULL,
		redaction_version bigint NOT NULL,
		unpacked_size bigint,
		checksum bigint NOT NULL,
		secrets text,
		text bytea NOT NULL
	);
	ALTER TABLE conversation_updates.events ALTER COLUMN text SET STORAGE EXTERNAL;
	CREATE INDEX events_by_conversation ON conversation_updates.events (conversation_id, sequence);
	CREATE UNIQUE INDEX events_by_id ON conversation_updates.events (conversation_id, event_id);

	CREATE TABLE conversation_updates.pruned (
		log text NOT NULL,
		conversation_id uuid NOT NULL,
		through bigint NOT NULL,
		removal bigint NOT NULL,
		PRIMARY KEY (log, conversation_id)
	);
	CREATE INDEX pruned_by_removal ON conversation_updates.pruned (log, removal, through);

	CREATE TABLE conversation_updates.retention (
		id bigint PRIMARY KEY CHECK (id = 1),
		clock bigint
	) WITH (fillfactor = 10);
	INSERT INTO conversation_updates.retention VALUES (1, NULL);

	CREATE TABLE conversation_updates.unfinished_copy (
		id bigint PRIMARY KEY CHECK (id = 1),
		source text NOT NULL
	);
`;

/** The SQL of the migration to each schema version; the first one creates version 1. */
export const MIGRATIONS: readonly string[] = [
	TABLES,
	`
		ALTER TABLE conversation_updates.conversations RENAME COLUMN is_behind TO has_unapplied_events;
		ALTER INDEX conversation_updates.conversations_behind RENAME TO conversations_unapplied;
	`,
	`
		ALTER INDEX IF EXISTS conversation_updates.titles_by_trigram SET (gin_pending_list_limit = 1024);
	`,
];

/**
 * Creates the index for the search in titles, if the extension pg_trgm is installed; `%s` stands for the schema of the
 * extension.
 *
 * The pending list of a GIN index collects new titles until it exceeds `gin_pending_list_limit`, in KiB. Every search
 * reads the whole list: 10 µs for each 8 KiB, so up to 5 ms with the server's default, 4 MiB. With a smaller limit, each
 * new title costs more.
 */
export const TITLE_INDEX = `
	CREATE INDEX CONCURRENTLY titles_by_trigram ON conversation_updates.titles USING gin (title %s.gin_trgm_ops)
	WITH (gin_pending_list_limit = 1024)
`;
export const DROP_TITLE_INDEX = "DROP INDEX CONCURRENTLY IF EXISTS conversation_updates.titles_by_trigram";
