-- Times are microseconds since the Unix epoch. Sequence numbers start at 1; gaps are possible.

-- One row with values of the whole store. `checks` counts the writes by which the service tests an idle database.
CREATE TABLE store_state (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	checks INTEGER NOT NULL
) STRICT;
INSERT INTO store_state VALUES (1, 0);

-- One row for each log, `updates` and `events`: how far it was pruned, and the number of its last removal.
CREATE TABLE logs (
	log TEXT PRIMARY KEY,
	pruned_through INTEGER NOT NULL,
	last_removal INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO logs VALUES ('updates', 0, 0), ('events', 0, 0);

-- Every update with its record. `record` is the last column, because long records are on overflow pages, and a column
-- after it would be slow to read. When `base_sequence` is set, `record` is a delta whose base is the whole record of that
-- update. `size` is the size of the whole record, or slightly more. `summary` is an encoded ConversationSummary without
-- the fields of the activity, which `activity` has as they were when the update was written. `checksum` is the CRC-32 of
-- `record`; `unpacked_size` is its size before compression with zstd, NULL when it is not compressed.
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

-- Every conversation that has a record: the state from which its next update is derived, and the columns that lists
-- filter by, from the summary of the current record. `sequence` is that of the current update. Records are ordered by
-- `order_time`. The columns whose names begin with `newest` describe the newest posted update. `told` has the time of the
-- last state update of each member, as JSON. Each index for an equality filter ends in `sequence`, so that it returns
-- conversations in the order of lists.
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
	is_behind INTEGER NOT NULL,
	told TEXT
) STRICT;
CREATE UNIQUE INDEX conversations_by_sequence ON conversations (sequence);
CREATE INDEX conversations_by_status ON conversations (status, sequence);
CREATE INDEX conversations_by_agent_kind ON conversations (agent_kind, sequence);
CREATE INDEX conversations_by_model ON conversations (model, sequence);
CREATE INDEX conversations_by_parent ON conversations (parent_id, sequence) WHERE parent_id IS NOT NULL;
CREATE INDEX conversations_by_created ON conversations (created_at) WHERE created_at IS NOT NULL;
CREATE INDEX conversations_by_updated ON conversations (updated_at) WHERE updated_at IS NOT NULL;
CREATE INDEX conversations_behind ON conversations (id) WHERE is_behind = 1;

-- The tags of the current records. `conversations.tags` has the same tags as JSON, to detect changes.
CREATE TABLE tags (
	conversation INTEGER NOT NULL,
	key TEXT NOT NULL,
	value TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	PRIMARY KEY (conversation, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_by_key ON tags (key, sequence);
CREATE INDEX tags_by_value ON tags (key, value, sequence);

-- The trigram index of the titles. Its row ids are those of `conversations`.
CREATE VIRTUAL TABLE titles USING fts5 (
	title, content = '', contentless_delete = 1, detail = none, tokenize = 'trigram'
);

-- Every conversation that has had events, also without a record: totals over all of its events, with pruned ones.
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

-- Every event. `activity` is a row id of `activities`. Both indexes begin with it, so that a batch of events touches few
-- pages, however many events there are. `secrets` has the JSON Pointers of encrypted values in `text`, as a JSON array.
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

-- How far each conversation was pruned in each log, also after the conversation itself was removed.
CREATE TABLE pruned (
	log TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	through INTEGER NOT NULL,
	removal INTEGER NOT NULL,
	PRIMARY KEY (log, conversation_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX pruned_by_removal ON pruned (log, removal, through);
