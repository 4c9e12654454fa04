-- Every table is in the schema conversation_updates, which the service creates with the table schema_versions. Times are
-- microseconds since the Unix epoch. Records and texts of events have STORAGE EXTERNAL: the service itself compresses
-- large ones. Other texts cannot contain U+0000 and are stored in the form that src/store/postgres/stored-text.ts
-- describes; they are compared byte by byte.

-- One row with the newest sequence of each log. A transaction that appends takes its sequences from this row, which stays
-- locked until the transaction has committed. So the order of sequences is the order of commits.
CREATE TABLE conversation_updates.positions (
	id bigint PRIMARY KEY CHECK (id = 1),
	newest_update bigint NOT NULL,
	newest_event bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO conversation_updates.positions VALUES (1, 0, 0);

-- How far each log was pruned, and the number of its last removal.
CREATE TABLE conversation_updates.removals (
	log text PRIMARY KEY,
	pruned_through bigint NOT NULL,
	last_removal bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO conversation_updates.removals VALUES ('updates', 0, 0), ('events', 0, 0);

-- The last group of each group committer of each running service. If the group was committed, `last_group` is its number,
-- which is even, and `first_update` and `first_event` are the newest sequences before it. If the group was given up,
-- `last_group` is its number plus 1.
CREATE TABLE conversation_updates.writers (
	id uuid PRIMARY KEY,
	last_group bigint NOT NULL,
	first_update bigint NOT NULL,
	first_event bigint NOT NULL,
	written_at timestamptz NOT NULL
) WITH (fillfactor = 10);

-- Every update with its record. When `base_sequence` is set, `record` is a delta whose base is the whole record of that
-- update. `size` is the size of the whole record, or slightly more. `summary` is an encoded ConversationSummary without
-- the fields of the activity, which `activity` has as they were when the update was written. `checksum` is the CRC-32 of
-- `record`; `unpacked_size` is its size before compression with zstd, NULL when it is not compressed.
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

-- Every conversation that has a record: the state from which its next update is derived, and the columns that lists
-- filter by, from the summary of the current record. `sequence` is that of the current update. Records are ordered by
-- `order_time`. The columns whose names begin with `newest` describe the newest posted update. `told` has the time of the
-- last state update of each member, as JSON. Each index for an equality filter ends in `sequence`, so that it returns
-- conversations in the order of lists.
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

-- The tags of the current records, each with the sequence of the current update.
CREATE TABLE conversation_updates.tags (
	conversation_id uuid NOT NULL,
	key text COLLATE "C" NOT NULL,
	value text COLLATE "C" NOT NULL,
	sequence bigint NOT NULL,
	PRIMARY KEY (conversation_id, key)
) WITH (fillfactor = 80);
CREATE INDEX tags_by_key ON conversation_updates.tags (key, sequence);
CREATE INDEX tags_by_value ON conversation_updates.tags (key, value, sequence);

-- The titles, with lower-case ASCII letters. They have a table of their own, so that their index is written only when a
-- title changes. The service creates the index titles_by_trigram if the extension pg_trgm is installed.
CREATE TABLE conversation_updates.titles (
	conversation_id uuid PRIMARY KEY,
	title text COLLATE "C" NOT NULL
);

-- Every conversation that has had events, also without a record: totals over all of its events, with pruned ones.
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

-- Every event. `event_id` is cut with a hash when it is long, because an index entry has at most 2,704 bytes. `secrets` has
-- the JSON Pointers of encrypted values in `text`, as a JSON array.
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

-- How far each conversation was pruned in each log, also after the conversation itself was removed.
CREATE TABLE conversation_updates.pruned (
	log text NOT NULL,
	conversation_id uuid NOT NULL,
	through bigint NOT NULL,
	removal bigint NOT NULL,
	PRIMARY KEY (log, conversation_id)
);
CREATE INDEX pruned_by_removal ON conversation_updates.pruned (log, removal, through);

-- One row with the time of retention, below which history is removed.
CREATE TABLE conversation_updates.retention (
	id bigint PRIMARY KEY CHECK (id = 1),
	clock bigint
) WITH (fillfactor = 10);
INSERT INTO conversation_updates.retention VALUES (1, NULL);

-- A row until a copy from another database is complete. The row describes the contents of the source.
CREATE TABLE conversation_updates.unfinished_copy (
	id bigint PRIMARY KEY CHECK (id = 1),
	source text NOT NULL
);
