-- Times are microseconds since the Unix epoch. Sequence numbers start at 1; gaps are possible.

-- Marks the file as a database of this service: "CUWS" in ASCII.
PRAGMA application_id = 1129666387;

-- One row with values of the whole store. `checks` counts the writes by which the service tests an idle database. `clock`
-- is the time of retention, below which history is removed. `open_run` is the id of the run of the service that has opened
-- the database; NULL after a clean stop. `must_purge`: whether files may still have something of erased conversations, see
-- purge.ts.
CREATE TABLE store_state (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	checks INTEGER NOT NULL,
	clock INTEGER,
	open_run TEXT,
	must_purge INTEGER NOT NULL
) STRICT;
INSERT INTO store_state VALUES (1, 0, NULL, NULL, 0);

-- One row for each log, `updates` and `events`: how far it was pruned, and the number of its last removal. Sequences up to
-- `skipped_through` are never assigned.
CREATE TABLE logs (
	log TEXT PRIMARY KEY,
	pruned_through INTEGER NOT NULL,
	last_removal INTEGER NOT NULL,
	skipped_through INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO logs VALUES ('updates', 0, 0, 0), ('events', 0, 0, 0);

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
	-- Who posted the update.
	sender TEXT,
	record BLOB NOT NULL
) STRICT;
CREATE INDEX updates_by_conversation ON updates (conversation);
CREATE INDEX updates_by_base ON updates (base_sequence) WHERE base_sequence IS NOT NULL;

-- The head of every conversation that has a record: what the next append depends on. `sequence` is that of the current
-- update. Records are ordered by `order_time`. The columns whose names begin with `newest` describe the newest posted
-- update.
CREATE TABLE heads (
	id INTEGER PRIMARY KEY,
	conversation_id TEXT NOT NULL UNIQUE,
	sequence INTEGER NOT NULL,
	status INTEGER NOT NULL,
	order_time INTEGER,
	-- created_at of the records of the conversation's present life; NULL while none has it.
	life_began_at INTEGER,
	-- Times of receipt stand in for missing times of the record: that of the first update, and that of the current one.
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	-- When the status last became running; NULL when it never did.
	run_started_at INTEGER,
	newest_sequence INTEGER,
	newest_updated_at INTEGER,
	newest_size INTEGER,
	revision INTEGER NOT NULL,
	posted_at INTEGER,
	-- Whether stored state updates that are later than the posted record may still have to be applied to it.
	has_unapplied_events INTEGER NOT NULL,
	-- The time of the last state update of each member, as JSON.
	member_times TEXT,
	-- The conversation of which this one is a fork, and its parent; NULL when the other one was erased.
	source_id TEXT,
	parent_id TEXT,
	-- Who posted the conversation first: the name of the access key or certificate, and the owner of what it posts. A
	-- conversation without a record has them in `activities` only; else both tables have the same.
	sender TEXT,
	owner TEXT
) STRICT;
CREATE INDEX heads_unapplied ON heads (id) WHERE has_unapplied_events = 1;
-- Finds the conversations without an owner.
CREATE INDEX heads_by_owner ON heads (owner);

-- How far each view has followed the logs: see views/.
CREATE TABLE views (
	name TEXT PRIMARY KEY,
	updates INTEGER NOT NULL,
	events INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO views VALUES ('conversations', 0, 0);

-- Conversations that changed without an entry in a log, such as by a gap that closed, until the views have followed.
CREATE TABLE changed_conversations (
	conversation_id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- The view of conversations: what lists filter and order by. `sequence` is that of the current update. Of a
-- conversation with events and no record it is that of the newest event less 2^63, so it is negative. `id` is that of
-- the head. Each index for an equality filter ends in `sequence`, so that it returns conversations in the order of
-- lists.
CREATE TABLE conversations (
	id INTEGER PRIMARY KEY,
	conversation_id TEXT NOT NULL UNIQUE,
	sequence INTEGER NOT NULL,
	status INTEGER NOT NULL,
	agent_kind TEXT NOT NULL,
	model TEXT NOT NULL,
	parent_id TEXT,
	source_id TEXT,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	run_started_at INTEGER,
	posted_at INTEGER,
	title TEXT,
	sender TEXT,
	owner TEXT,
	cost REAL NOT NULL,
	-- The sum of prompt and completion tokens.
	tokens INTEGER NOT NULL,
	-- When the latest event happened; without events, the time of the current update.
	activity_at INTEGER NOT NULL,
	-- Whether the summary shows an error.
	has_error INTEGER NOT NULL,
	-- The number of gaps of the conversation, and when the oldest was noticed.
	gap_count INTEGER NOT NULL,
	gaps_since INTEGER
) STRICT;
CREATE UNIQUE INDEX conversations_by_sequence ON conversations (sequence);
CREATE INDEX conversations_by_status ON conversations (status, sequence);
CREATE INDEX conversations_by_agent_kind ON conversations (agent_kind, sequence);
CREATE INDEX conversations_by_model ON conversations (model, sequence);
CREATE INDEX conversations_by_parent ON conversations (parent_id, sequence) WHERE parent_id IS NOT NULL;
CREATE INDEX conversations_by_source ON conversations (source_id, sequence) WHERE source_id IS NOT NULL;
CREATE INDEX conversations_by_sender ON conversations (sender, sequence);
CREATE INDEX conversations_by_created ON conversations (created_at, sequence);
CREATE INDEX conversations_by_updated ON conversations (updated_at);
CREATE INDEX conversations_by_cost ON conversations (cost, sequence);
CREATE INDEX conversations_by_tokens ON conversations (tokens, sequence);
CREATE INDEX conversations_by_activity ON conversations (activity_at, sequence);
CREATE INDEX conversations_with_error ON conversations (sequence) WHERE has_error = 1;
CREATE INDEX conversations_with_gaps ON conversations (sequence) WHERE gap_count > 0;
-- Counts running conversations, whose status is 2.
CREATE INDEX conversations_running ON conversations (sender, owner) WHERE status = 2 AND sender IS NOT NULL;
-- Lists of an owner in each order.
CREATE INDEX conversations_of_owner_by_activity ON conversations (owner, activity_at, sequence) WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_created ON conversations (owner, created_at, sequence) WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_cost ON conversations (owner, cost, sequence) WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_tokens ON conversations (owner, tokens, sequence) WHERE owner IS NOT NULL;
-- With values that filters test, so that a list reads only the rows that it returns.
CREATE INDEX conversations_by_owner ON conversations (owner, sequence, status, agent_kind, model, parent_id, source_id);

-- The tags of the conversations.
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

-- Every conversation that has had events, also without a record: totals over all of its events, with pruned ones. `error`
-- is the latest error, as JSON; `first_message` the first message of a user.
CREATE TABLE activities (
	id INTEGER PRIMARY KEY,
	conversation_id TEXT NOT NULL UNIQUE,
	event_count INTEGER NOT NULL,
	last_at INTEGER NOT NULL,
	-- When the latest state update happened.
	last_state_update_at INTEGER,
	leaf_at INTEGER,
	leaf TEXT,
	message_at INTEGER,
	message TEXT,
	first_message_at INTEGER,
	first_message TEXT,
	error_at INTEGER,
	error TEXT,
	error_sequence INTEGER,
	sender TEXT,
	owner TEXT
) STRICT;
CREATE INDEX activities_by_owner ON activities (owner);

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
	-- The stored form of the id of the model's response that the event shows.
	llm_response_id TEXT,
	-- Who posted the event.
	sender TEXT,
	-- Where it comes from, as UpdateOrigin; NULL for a posted one.
	origin INTEGER,
	text BLOB NOT NULL
) STRICT;
CREATE INDEX events_by_activity ON events (activity);
CREATE UNIQUE INDEX events_by_id ON events (activity, event_id);
CREATE INDEX events_by_response ON events (activity, llm_response_id) WHERE llm_response_id IS NOT NULL;

-- How far each conversation was pruned in each log, also after the conversation itself was removed. `owner` is that of the
-- conversation then.
CREATE TABLE pruned (
	log TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	through INTEGER NOT NULL,
	removal INTEGER NOT NULL,
	owner TEXT,
	PRIMARY KEY (log, conversation_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX pruned_by_removal ON pruned (log, removal, through);
-- How far the logs of an owner were pruned.
CREATE INDEX pruned_by_owner ON pruned (log, owner, through) WHERE owner IS NOT NULL;

-- The sequences of the updates and events of conversations with an owner, in the order of an owner's logs. They are no
-- columns of the logs, because a conversation can get another owner, and rows with records are costly to write again.
CREATE TABLE updates_of_owners (
	owner TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	PRIMARY KEY (owner, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE events_of_owners (
	owner TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	PRIMARY KEY (owner, sequence)
) STRICT, WITHOUT ROWID;

-- The times between which the events of each block of 1,024 sequence numbers happened, so that a list of a range of time
-- begins at its first block. The range of a block may be too wide: it stays when events are removed.
CREATE TABLE event_times (
	block INTEGER PRIMARY KEY,
	first_at INTEGER NOT NULL,
	last_at INTEGER NOT NULL
) STRICT;
CREATE TRIGGER event_added AFTER INSERT ON events BEGIN
	INSERT INTO event_times VALUES (NEW.sequence >> 10, NEW.happened_at, NEW.happened_at)
	ON CONFLICT DO UPDATE SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
	WHERE excluded.first_at < first_at OR excluded.last_at > last_at;
END;

-- Access keys that were made while the service ran: see access-keys.ts. Times are microseconds since the Unix epoch.
CREATE TABLE access_keys (
	name TEXT PRIMARY KEY,
	sha256 BLOB NOT NULL,
	-- Separated by plus signs.
	scopes TEXT NOT NULL,
	owner TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	created_by TEXT NOT NULL,
	expires_at INTEGER,
	revoked_at INTEGER,
	last_used_at INTEGER
) STRICT, WITHOUT ROWID;

-- Every conversation whose usage has been counted, also after the conversation itself was removed. `ledger` says what has
-- been counted of the stats of the current record, whose digest is `digest`: see usage/ledger.ts.
CREATE TABLE usage_conversations (
	id INTEGER PRIMARY KEY,
	conversation_id TEXT NOT NULL UNIQUE,
	sender TEXT NOT NULL,
	owner TEXT NOT NULL,
	life INTEGER NOT NULL,
	life_began_at INTEGER,
	digest INTEGER NOT NULL,
	ledger TEXT NOT NULL
) STRICT;
CREATE INDEX usage_conversations_by_owner ON usage_conversations (owner);

-- The usage of each life of each conversation. `conversation` is a row id of usage_conversations. `quarter` is the number
-- of quarters of an hour since the Unix epoch. `cost` is in units of 10^-9.
CREATE TABLE usage_ledger (
	conversation INTEGER NOT NULL,
	life INTEGER NOT NULL,
	quarter INTEGER NOT NULL,
	model TEXT NOT NULL,
	usage_id TEXT NOT NULL,
	agent_kind TEXT NOT NULL,
	cost INTEGER NOT NULL,
	prompt_tokens INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	cache_read_tokens INTEGER NOT NULL,
	cache_write_tokens INTEGER NOT NULL,
	reasoning_tokens INTEGER NOT NULL,
	calls INTEGER NOT NULL,
	PRIMARY KEY (conversation, life, quarter, model, usage_id, agent_kind)
) STRICT, WITHOUT ROWID;
-- Reports count distinct conversations with this index alone, which also has the columns of the key.
CREATE INDEX usage_ledger_by_quarter ON usage_ledger (quarter);

-- Sums of usage_ledger over all conversations, for periods of a quarter of an hour, an hour and a day (UTC): `length` and
-- `start` are in quarters of an hour. Sums of all time have the length 2^32. They begin at 0, those of the time before the
-- Unix epoch at -2^32.
CREATE TABLE usage_sums (
	length INTEGER NOT NULL,
	start INTEGER NOT NULL,
	model TEXT NOT NULL,
	usage_id TEXT NOT NULL,
	agent_kind TEXT NOT NULL,
	sender TEXT NOT NULL,
	owner TEXT NOT NULL,
	cost INTEGER NOT NULL,
	prompt_tokens INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	cache_read_tokens INTEGER NOT NULL,
	cache_write_tokens INTEGER NOT NULL,
	reasoning_tokens INTEGER NOT NULL,
	calls INTEGER NOT NULL,
	PRIMARY KEY (length, start, model, usage_id, agent_kind, sender, owner)
) STRICT, WITHOUT ROWID;

-- Which conversations have usage on which days (UTC): `day` is the number of days since the Unix epoch. Reports count
-- distinct conversations with it. The triggers below derive it from usage_ledger.
CREATE TABLE usage_days (
	day INTEGER NOT NULL,
	model TEXT NOT NULL,
	conversation INTEGER NOT NULL,
	usage_id TEXT NOT NULL,
	agent_kind TEXT NOT NULL,
	PRIMARY KEY (day, model, conversation, usage_id, agent_kind)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER usage_added AFTER INSERT ON usage_ledger BEGIN
	INSERT INTO usage_days
	VALUES (
		(NEW.quarter - (NEW.quarter % 96 + 96) % 96) / 96, NEW.model, NEW.conversation, NEW.usage_id, NEW.agent_kind
	)
	ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER usage_removed AFTER DELETE ON usage_ledger BEGIN
	DELETE FROM usage_days
	WHERE day = (OLD.quarter - (OLD.quarter % 96 + 96) % 96) / 96 AND model = OLD.model
		AND conversation = OLD.conversation AND usage_id = OLD.usage_id AND agent_kind = OLD.agent_kind
		AND NOT EXISTS (
			SELECT 1 FROM usage_ledger l
			WHERE l.conversation = OLD.conversation AND l.quarter >= day * 96 AND l.quarter < day * 96 + 96
				AND l.model = OLD.model AND l.usage_id = OLD.usage_id AND l.agent_kind = OLD.agent_kind
		);
END;

-- Totals of each sender and owner, over all of its posts. An empty owner stands for none.
CREATE TABLE senders (
	owner TEXT NOT NULL,
	sender TEXT NOT NULL,
	first_post_at INTEGER NOT NULL,
	last_post_at INTEGER NOT NULL,
	posts INTEGER NOT NULL,
	records INTEGER NOT NULL,
	events INTEGER NOT NULL,
	usual_interval INTEGER NOT NULL,
	PRIMARY KEY (owner, sender)
) STRICT, WITHOUT ROWID;

-- Numbers of refused posts by the beginning of a period of five minutes, and by kind. Old periods are removed.
CREATE TABLE refusals (
	owner TEXT NOT NULL,
	sender TEXT NOT NULL,
	since INTEGER NOT NULL,
	kind TEXT NOT NULL,
	count INTEGER NOT NULL,
	PRIMARY KEY (owner, sender, since, kind)
) STRICT, WITHOUT ROWID;

-- Posts that were refused: see refused-posts.ts. Times are microseconds since the Unix epoch.
CREATE TABLE refused_posts (
	id INTEGER PRIMARY KEY,
	received_at INTEGER NOT NULL,
	last_at INTEGER NOT NULL,
	-- Number of requests that the row stands for.
	requests INTEGER NOT NULL,
	sender TEXT,
	owner TEXT,
	-- Address of a client whose requests had no valid key.
	peer TEXT,
	route TEXT NOT NULL,
	form TEXT NOT NULL,
	kind TEXT NOT NULL,
	-- JSON.
	reasons TEXT NOT NULL,
	conversation_id TEXT,
	-- Bytes of the body as it arrived.
	size INTEGER NOT NULL,
	accepted INTEGER NOT NULL,
	retried_at INTEGER,
	-- Bytes that count towards the room for refused posts.
	bytes INTEGER NOT NULL,
	-- Compressed and encrypted.
	body BLOB
) STRICT;
CREATE INDEX refused_posts_by_owner ON refused_posts (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX refused_posts_by_conversation ON refused_posts (conversation_id) WHERE conversation_id IS NOT NULL;
CREATE INDEX refused_posts_by_peer ON refused_posts (id) WHERE peer IS NOT NULL;
-- Sums up the room without reading the rows.
CREATE INDEX refused_posts_room ON refused_posts (accepted, id, bytes);

-- Numbers of conversations that have the same values of all these columns, and numbers of tags. Empty: no owner, no
-- sender. A row whose number becomes zero is removed.
CREATE TABLE conversation_counts (
	owner TEXT NOT NULL,
	status INTEGER NOT NULL,
	agent_kind TEXT NOT NULL,
	model TEXT NOT NULL,
	sender TEXT NOT NULL,
	number INTEGER NOT NULL,
	PRIMARY KEY (owner, status, agent_kind, model, sender)
) STRICT, WITHOUT ROWID;
CREATE TABLE tag_key_counts (
	owner TEXT NOT NULL,
	key TEXT NOT NULL,
	number INTEGER NOT NULL,
	PRIMARY KEY (key, owner)
) STRICT, WITHOUT ROWID;
CREATE TABLE tag_value_counts (
	owner TEXT NOT NULL,
	key TEXT NOT NULL,
	value TEXT NOT NULL,
	number INTEGER NOT NULL,
	PRIMARY KEY (key, value, owner)
) STRICT, WITHOUT ROWID;

-- What is known to be missing of each conversation: see gaps.ts. `missing` is the id of the missing event, or of the refused
-- post; empty for a missing record. `since` is when it was noticed, in microseconds since the Unix epoch.
CREATE TABLE gaps (
	conversation_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	missing TEXT NOT NULL,
	after_event_id TEXT,
	since INTEGER NOT NULL,
	PRIMARY KEY (conversation_id, kind, missing)
) STRICT, WITHOUT ROWID;
-- Finds the forks that miss an event of their source.
CREATE INDEX gaps_by_missing ON gaps (missing);

-- How far the index of search comes: see text-index.ts.
CREATE TABLE search_progress (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	version INTEGER NOT NULL,
	events INTEGER NOT NULL,
	updates INTEGER NOT NULL
) STRICT;
INSERT INTO search_progress VALUES (1, 0, 0, 0);

-- The words of the texts of events, without their order, and a word for the conversation. The row ids are the sequences of
-- the events. The tokenizer changes nothing of the words, which have no other ASCII characters than letters and digits.
-- Beginnings of words of two characters have lists of their own: without them, the lists of all words with such a
-- beginning are merged for each search, which takes seconds.
CREATE VIRTUAL TABLE search_texts USING fts5 (
	words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2'
);

-- The titles of conversations and their words. The row ids of both tables are those of `conversations`. `digest` identifies
-- the title.
CREATE TABLE search_titles (
	conversation INTEGER PRIMARY KEY,
	digest INTEGER NOT NULL
) STRICT;
CREATE VIRTUAL TABLE search_title_words USING fts5 (
	words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2'
);

-- Erased conversations: see erasure.ts. Their sequences belong to the log of updates.
CREATE TABLE erasures (
	id_digest TEXT PRIMARY KEY,
	sequence INTEGER NOT NULL UNIQUE,
	owner TEXT,
	created_at INTEGER NOT NULL,
	erased_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX erasures_by_owner ON erasures (owner, sequence);

-- With 'usermerge' 2, the merges of an index of words that an erasure begins go on until all is in one segment.
INSERT INTO search_texts (search_texts, rank) VALUES ('usermerge', 2);
INSERT INTO search_title_words (search_title_words, rank) VALUES ('usermerge', 2);
INSERT INTO titles (titles, rank) VALUES ('usermerge', 2);
