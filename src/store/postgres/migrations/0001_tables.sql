-- Every table is in the schema conversation_updates, which the service creates with the table schema_versions. Times are
-- microseconds since the Unix epoch. Records and texts of events have STORAGE EXTERNAL: the service itself compresses
-- large ones. Other texts cannot contain U+0000 and are stored in the form that src/store/postgres/stored-text.ts
-- describes; they are compared byte by byte.

-- One row with the newest sequence of each log. A transaction that appends takes its sequences from this row, which stays
-- locked until the transaction has committed. So the order of sequences is the order of commits.
-- `rewrites` is how often stored entries changed: conversations were given owners, or were erased. Processes that keep
-- entries in memory read them again when it grows.
CREATE TABLE conversation_updates.positions (
	id bigint PRIMARY KEY CHECK (id = 1),
	newest_update bigint NOT NULL,
	newest_event bigint NOT NULL,
	rewrites bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO conversation_updates.positions VALUES (1, 0, 0, 0);

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
	record bytea NOT NULL,
	-- Who posted the update.
	sender text,
	-- The owner of the conversation, for logs of an owner.
	owner text COLLATE "C",
	-- Sequence of the event whose error the summary shows. The fields in `activity` lack it.
	error_sequence bigint
);
ALTER TABLE conversation_updates.updates ALTER COLUMN record SET STORAGE EXTERNAL;
CREATE INDEX updates_by_conversation ON conversation_updates.updates (conversation_id, sequence);
CREATE INDEX updates_by_base ON conversation_updates.updates (base_sequence) WHERE base_sequence IS NOT NULL;
CREATE INDEX updates_by_owner ON conversation_updates.updates (owner, sequence) WHERE owner IS NOT NULL;

-- The head of every conversation that has a record: what the next append depends on. `sequence` is that of the current
-- update. Records are ordered by `order_time`. The columns whose names begin with `newest` describe the newest posted
-- update.
CREATE TABLE conversation_updates.heads (
	conversation_id uuid PRIMARY KEY,
	sequence bigint NOT NULL,
	status bigint NOT NULL,
	order_time bigint,
	-- created_at of the records of the conversation's present life; NULL while none has it.
	life_began_at bigint,
	-- Times of receipt stand in for missing times of the record: that of the first update, and that of the current one.
	created_at bigint NOT NULL,
	updated_at bigint NOT NULL,
	-- When the status last became running; NULL when it never did.
	run_started_at bigint,
	newest_sequence bigint,
	newest_updated_at bigint,
	newest_size bigint,
	revision bigint NOT NULL,
	posted_at bigint,
	-- Whether stored state updates that are later than the posted record may still have to be applied to it.
	has_unapplied_events boolean NOT NULL,
	-- The time of the last state update of each member, as JSON.
	member_times text,
	-- The conversation of which this one is a fork, and its parent; NULL when the other one was erased.
	source_id text COLLATE "C",
	parent_id text COLLATE "C",
	-- Who posted the conversation first: the name of the access key or certificate, and the owner of what it posts. A
	-- conversation without a record has them in `activities` only; else both tables have the same.
	sender text COLLATE "C",
	owner text COLLATE "C"
) WITH (fillfactor = 70);
CREATE INDEX heads_unapplied ON conversation_updates.heads (conversation_id) WHERE has_unapplied_events;
-- Finds the conversations without an owner.
CREATE INDEX heads_by_owner ON conversation_updates.heads (owner);

-- How far each view has followed the logs: see views/.
CREATE TABLE conversation_updates.views (
	name text PRIMARY KEY,
	updates bigint NOT NULL,
	events bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO conversation_updates.views VALUES ('conversations', 0, 0);

-- Conversations that changed without an entry in a log, such as by a gap that closed, until the views have followed.
CREATE TABLE conversation_updates.changed_conversations (
	conversation_id uuid PRIMARY KEY
);

-- The view of conversations: what lists filter and order by. `sequence` is that of the current update. Of a
-- conversation with events and no record it is that of the newest event less 2^63, so it is negative. Each index for an
-- equality filter ends in `sequence`, so that it returns conversations in the order of lists.
CREATE TABLE conversation_updates.conversations (
	conversation_id uuid PRIMARY KEY,
	sequence bigint NOT NULL,
	status bigint NOT NULL,
	agent_kind text COLLATE "C" NOT NULL,
	model text COLLATE "C" NOT NULL,
	parent_id text COLLATE "C",
	source_id text COLLATE "C",
	created_at bigint NOT NULL,
	updated_at bigint NOT NULL,
	run_started_at bigint,
	posted_at bigint,
	sender text COLLATE "C",
	owner text COLLATE "C",
	cost double precision NOT NULL,
	-- The sum of prompt and completion tokens.
	tokens bigint NOT NULL,
	-- When the latest event happened; without events, the time of the current update.
	activity_at bigint NOT NULL,
	-- Whether the summary shows an error.
	has_error boolean NOT NULL,
	-- The number of gaps of the conversation, and when the oldest was noticed.
	gap_count bigint NOT NULL,
	gaps_since bigint
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX conversations_by_sequence ON conversation_updates.conversations (sequence);
CREATE INDEX conversations_by_status ON conversation_updates.conversations (status, sequence);
CREATE INDEX conversations_by_agent_kind ON conversation_updates.conversations (agent_kind, sequence);
CREATE INDEX conversations_by_model ON conversation_updates.conversations (model, sequence);
CREATE INDEX conversations_by_parent ON conversation_updates.conversations (parent_id, sequence)
	WHERE parent_id IS NOT NULL;
CREATE INDEX conversations_by_source ON conversation_updates.conversations (source_id, sequence)
	WHERE source_id IS NOT NULL;
CREATE INDEX conversations_by_sender ON conversation_updates.conversations (sender, sequence);
CREATE INDEX conversations_by_owner ON conversation_updates.conversations (owner, sequence);
CREATE INDEX conversations_by_created ON conversation_updates.conversations (created_at, sequence);
CREATE INDEX conversations_by_updated ON conversation_updates.conversations (updated_at);
CREATE INDEX conversations_by_cost ON conversation_updates.conversations (cost, sequence);
CREATE INDEX conversations_by_tokens ON conversation_updates.conversations (tokens, sequence);
CREATE INDEX conversations_by_activity ON conversation_updates.conversations (activity_at, sequence);
CREATE INDEX conversations_with_error ON conversation_updates.conversations (sequence) WHERE has_error;
CREATE INDEX conversations_with_gaps ON conversation_updates.conversations (sequence) WHERE gap_count > 0;
-- Counts running conversations, whose status is 2.
CREATE INDEX conversations_running ON conversation_updates.conversations (sender, owner)
	WHERE status = 2 AND sender IS NOT NULL;
-- Lists of an owner in each order.
CREATE INDEX conversations_of_owner_by_activity ON conversation_updates.conversations (owner, activity_at, sequence)
	WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_created ON conversation_updates.conversations (owner, created_at, sequence)
	WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_cost ON conversation_updates.conversations (owner, cost, sequence)
	WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_tokens ON conversation_updates.conversations (owner, tokens, sequence)
	WHERE owner IS NOT NULL;

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

-- Every conversation that has had events, also without a record: totals over all of its events, with pruned ones. `error`
-- is the latest error, as JSON; `first_message` the first message of a user.
CREATE TABLE conversation_updates.activities (
	conversation_id uuid PRIMARY KEY,
	event_count bigint NOT NULL,
	last_at bigint NOT NULL,
	-- When the latest state update happened.
	last_state_update_at bigint,
	leaf_at bigint,
	leaf text,
	message_at bigint,
	message text,
	first_message_at bigint,
	first_message text,
	error_at bigint,
	error text,
	error_sequence bigint,
	sender text COLLATE "C",
	owner text COLLATE "C"
) WITH (fillfactor = 70);
CREATE INDEX activities_by_owner ON conversation_updates.activities (owner);

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
	text bytea NOT NULL,
	-- The stored form of the id of the model's response that the event shows.
	llm_response_id text COLLATE "C",
	-- Who posted the event.
	sender text,
	-- Where it comes from, as UpdateOrigin; NULL for a posted one.
	origin bigint,
	-- The owner of the conversation, for logs of an owner.
	owner text COLLATE "C"
);
ALTER TABLE conversation_updates.events ALTER COLUMN text SET STORAGE EXTERNAL;
CREATE INDEX events_by_conversation ON conversation_updates.events (conversation_id, sequence);
CREATE UNIQUE INDEX events_by_id ON conversation_updates.events (conversation_id, event_id);
CREATE INDEX events_by_response ON conversation_updates.events (conversation_id, llm_response_id)
	WHERE llm_response_id IS NOT NULL;
CREATE INDEX events_by_owner ON conversation_updates.events (owner, sequence) WHERE owner IS NOT NULL;

-- The times between which the events of each block of 1,024 sequence numbers happened, so that a list of a range of time
-- begins at its first block. The range of a block may be too wide: it stays when events are removed. A transaction that
-- inserts events holds the row of `positions`, so that no other one changes the same block.
CREATE TABLE conversation_updates.event_times (
	block bigint PRIMARY KEY,
	first_at bigint NOT NULL,
	last_at bigint NOT NULL
) WITH (fillfactor = 50);
CREATE FUNCTION conversation_updates.widen_event_times() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO conversation_updates.event_times AS t
		SELECT sequence >> 10, min(happened_at), max(happened_at) FROM after GROUP BY 1
		ON CONFLICT (block) DO UPDATE
		SET first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at)
		WHERE excluded.first_at < t.first_at OR excluded.last_at > t.last_at;
		RETURN NULL;
	END
$$;
CREATE TRIGGER events_added AFTER INSERT ON conversation_updates.events
	REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.widen_event_times();

-- How far each conversation was pruned in each log, also after the conversation itself was removed. `owner` is that of the
-- conversation then.
CREATE TABLE conversation_updates.pruned (
	log text NOT NULL,
	conversation_id uuid NOT NULL,
	through bigint NOT NULL,
	removal bigint NOT NULL,
	owner text,
	PRIMARY KEY (log, conversation_id)
);
CREATE INDEX pruned_by_removal ON conversation_updates.pruned (log, removal, through);
-- How far the logs of an owner were pruned.
CREATE INDEX pruned_by_owner ON conversation_updates.pruned (log, owner, through) WHERE owner IS NOT NULL;

-- One row with the time of retention, below which history is removed.
CREATE TABLE conversation_updates.retention (
	id bigint PRIMARY KEY CHECK (id = 1),
	clock bigint
) WITH (fillfactor = 10);
INSERT INTO conversation_updates.retention VALUES (1, NULL);

-- Has a row with the manifest of an export until its import is finished.
CREATE TABLE conversation_updates.unfinished_import (
	id bigint PRIMARY KEY CHECK (id = 1),
	manifest text NOT NULL
);

-- Access keys that were made while the service ran: see access-keys.ts. Times are microseconds since the Unix epoch.
CREATE TABLE conversation_updates.access_keys (
	-- Names are ordered as SQLite orders them.
	name text COLLATE "C" PRIMARY KEY,
	sha256 bytea NOT NULL,
	-- Separated by plus signs.
	scopes text NOT NULL,
	owner text NOT NULL,
	created_at bigint NOT NULL,
	created_by text NOT NULL,
	expires_at bigint,
	revoked_at bigint,
	last_used_at bigint
);

-- Work that one process at a time does, such as comparing with an agent server. Times are microseconds since the Unix epoch.
CREATE TABLE conversation_updates.claims (
	name text PRIMARY KEY,
	holder text NOT NULL,
	until bigint NOT NULL
);

-- Every conversation whose usage has been counted, also after the conversation itself was removed. `ledger` says what has
-- been counted of the stats of the current record, whose digest is `digest`: see usage/ledger.ts.
CREATE TABLE conversation_updates.usage_conversations (
	id uuid PRIMARY KEY,
	sender text COLLATE "C" NOT NULL,
	owner text COLLATE "C" NOT NULL,
	life bigint NOT NULL,
	life_began_at bigint,
	digest bigint NOT NULL,
	ledger text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX usage_conversations_by_owner ON conversation_updates.usage_conversations (owner);

-- The usage of each life of each conversation. `conversation` is an id of usage_conversations. `quarter` is the number of
-- quarters of an hour since the Unix epoch. `cost` is in units of 10^-9.
CREATE TABLE conversation_updates.usage_ledger (
	conversation uuid NOT NULL,
	life bigint NOT NULL,
	quarter bigint NOT NULL,
	model text COLLATE "C" NOT NULL,
	usage_id text COLLATE "C" NOT NULL,
	agent_kind text COLLATE "C" NOT NULL,
	cost bigint NOT NULL,
	prompt_tokens bigint NOT NULL,
	completion_tokens bigint NOT NULL,
	cache_read_tokens bigint NOT NULL,
	cache_write_tokens bigint NOT NULL,
	reasoning_tokens bigint NOT NULL,
	calls bigint NOT NULL,
	PRIMARY KEY (conversation, life, quarter, model, usage_id, agent_kind)
) WITH (fillfactor = 80);
-- Reports count distinct conversations with this index alone.
CREATE INDEX usage_ledger_by_quarter ON conversation_updates.usage_ledger (quarter)
	INCLUDE (conversation, model, usage_id, agent_kind);

-- Sums of usage_ledger over all conversations, for periods of a quarter of an hour, an hour and a day (UTC): `length` and
-- `start` are in quarters of an hour. Sums of all time have the length 2^32. They begin at 0, those of the time before the
-- Unix epoch at -2^32.
CREATE TABLE conversation_updates.usage_sums (
	length bigint NOT NULL,
	start bigint NOT NULL,
	model text COLLATE "C" NOT NULL,
	usage_id text COLLATE "C" NOT NULL,
	agent_kind text COLLATE "C" NOT NULL,
	sender text COLLATE "C" NOT NULL,
	owner text COLLATE "C" NOT NULL,
	cost bigint NOT NULL,
	prompt_tokens bigint NOT NULL,
	completion_tokens bigint NOT NULL,
	cache_read_tokens bigint NOT NULL,
	cache_write_tokens bigint NOT NULL,
	reasoning_tokens bigint NOT NULL,
	calls bigint NOT NULL,
	PRIMARY KEY (length, start, model, usage_id, agent_kind, sender, owner)
) WITH (fillfactor = 70);

-- Which conversations have usage on which days (UTC): `day` is the number of days since the Unix epoch. Reports count
-- distinct conversations with it. The triggers below derive it from usage_ledger.
CREATE TABLE conversation_updates.usage_days (
	day bigint NOT NULL,
	model text COLLATE "C" NOT NULL,
	conversation uuid NOT NULL,
	usage_id text COLLATE "C" NOT NULL,
	agent_kind text COLLATE "C" NOT NULL,
	PRIMARY KEY (day, model, conversation, usage_id, agent_kind)
);
CREATE FUNCTION conversation_updates.add_usage_days() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO conversation_updates.usage_days
		SELECT DISTINCT (quarter - (quarter % 96 + 96) % 96) / 96, model, conversation, usage_id, agent_kind FROM after
		ON CONFLICT DO NOTHING;
		RETURN NULL;
	END
$$;
CREATE FUNCTION conversation_updates.remove_usage_days() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		DELETE FROM conversation_updates.usage_days d USING before o
		WHERE d.day = (o.quarter - (o.quarter % 96 + 96) % 96) / 96 AND d.model = o.model
			AND d.conversation = o.conversation AND d.usage_id = o.usage_id AND d.agent_kind = o.agent_kind
			AND NOT EXISTS (
				SELECT 1 FROM conversation_updates.usage_ledger l
				WHERE l.conversation = o.conversation AND l.quarter >= d.day * 96 AND l.quarter < d.day * 96 + 96
					AND l.model = o.model AND l.usage_id = o.usage_id AND l.agent_kind = o.agent_kind
			);
		RETURN NULL;
	END
$$;
CREATE TRIGGER usage_added AFTER INSERT ON conversation_updates.usage_ledger
	REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.add_usage_days();
CREATE TRIGGER usage_removed AFTER DELETE ON conversation_updates.usage_ledger
	REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.remove_usage_days();

-- Totals of each sender and owner, over all of its posts. An empty owner stands for none.
CREATE TABLE conversation_updates.senders (
	owner text COLLATE "C" NOT NULL,
	sender text COLLATE "C" NOT NULL,
	first_post_at bigint NOT NULL,
	last_post_at bigint NOT NULL,
	posts bigint NOT NULL,
	records bigint NOT NULL,
	events bigint NOT NULL,
	usual_interval bigint NOT NULL,
	PRIMARY KEY (owner, sender)
) WITH (fillfactor = 10);

-- Numbers of refused posts by the beginning of a period of five minutes, and by kind. Old periods are removed.
CREATE TABLE conversation_updates.refusals (
	owner text COLLATE "C" NOT NULL,
	sender text COLLATE "C" NOT NULL,
	since bigint NOT NULL,
	kind text COLLATE "C" NOT NULL,
	count bigint NOT NULL,
	PRIMARY KEY (owner, sender, since, kind)
);

-- Posts that were refused: see refused-posts.ts. Times are microseconds since the Unix epoch.
CREATE TABLE conversation_updates.refused_posts (
	id bigint PRIMARY KEY,
	received_at bigint NOT NULL,
	last_at bigint NOT NULL,
	-- Number of requests that the row stands for.
	requests bigint NOT NULL,
	sender text COLLATE "C",
	owner text COLLATE "C",
	-- Address of a client whose requests had no valid key.
	peer text COLLATE "C",
	route text COLLATE "C" NOT NULL,
	form text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL,
	-- JSON.
	reasons text COLLATE "C" NOT NULL,
	conversation_id uuid,
	-- Bytes of the body as it arrived.
	size bigint NOT NULL,
	accepted boolean NOT NULL,
	retried_at bigint,
	-- Bytes that count towards the room for refused posts.
	bytes bigint NOT NULL,
	-- Compressed and encrypted.
	body bytea
);
-- In the table's definition only PostgreSQL 16 and later know it.
ALTER TABLE conversation_updates.refused_posts ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX refused_posts_by_owner ON conversation_updates.refused_posts (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX refused_posts_by_conversation ON conversation_updates.refused_posts (conversation_id)
	WHERE conversation_id IS NOT NULL;
CREATE INDEX refused_posts_by_peer ON conversation_updates.refused_posts (id) WHERE peer IS NOT NULL;
-- Sums up the room without reading the rows.
CREATE INDEX refused_posts_room ON conversation_updates.refused_posts (accepted, id, bytes);

-- Numbers of conversations that have the same values of all these columns, and numbers of tags. Empty: no owner, no
-- sender. A row whose number becomes zero is removed.
CREATE TABLE conversation_updates.conversation_counts (
	owner text COLLATE "C" NOT NULL,
	status bigint NOT NULL,
	agent_kind text COLLATE "C" NOT NULL,
	model text COLLATE "C" NOT NULL,
	sender text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	PRIMARY KEY (owner, status, agent_kind, model, sender)
) WITH (fillfactor = 50);
CREATE TABLE conversation_updates.tag_key_counts (
	owner text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	PRIMARY KEY (key, owner)
) WITH (fillfactor = 50);
CREATE TABLE conversation_updates.tag_value_counts (
	owner text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	value text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	PRIMARY KEY (key, value, owner)
) WITH (fillfactor = 50);

-- What is known to be missing of each conversation: see gaps.ts. `missing` is the id of the missing event, or of the refused
-- post; empty for a missing record. `since` is when it was noticed, in microseconds since the Unix epoch.
CREATE TABLE conversation_updates.gaps (
	conversation_id uuid NOT NULL,
	kind text COLLATE "C" NOT NULL,
	missing text COLLATE "C" NOT NULL,
	after_event_id text,
	since bigint NOT NULL,
	PRIMARY KEY (conversation_id, kind, missing)
);
-- Finds the forks that miss an event of their source.
CREATE INDEX gaps_by_missing ON conversation_updates.gaps (missing);

-- How far the index of search comes, and which process writes it until when: see text-index.ts.
CREATE TABLE conversation_updates.search_progress (
	id bigint PRIMARY KEY CHECK (id = 1),
	version bigint NOT NULL,
	events bigint NOT NULL,
	updates bigint NOT NULL,
	holder text,
	held_until timestamptz
) WITH (fillfactor = 10);
INSERT INTO conversation_updates.search_progress VALUES (1, 0, 0, 0, NULL, NULL);

-- The words of the texts of events, without their order.
CREATE TABLE conversation_updates.search_texts (
	sequence bigint PRIMARY KEY,
	conversation_id uuid NOT NULL,
	words tsvector NOT NULL
);
-- Every search reads the whole pending list of an index: 10 µs for each 8 KiB. The server's default is 4 MiB.
CREATE INDEX search_texts_by_word ON conversation_updates.search_texts USING gin (words)
	WITH (gin_pending_list_limit = 1024);

-- The titles of conversations and their words. `digest` identifies the title.
CREATE TABLE conversation_updates.search_titles (
	conversation_id uuid PRIMARY KEY,
	digest bigint NOT NULL,
	words tsvector NOT NULL
);
CREATE INDEX search_titles_by_word ON conversation_updates.search_titles USING gin (words)
	WITH (gin_pending_list_limit = 1024);

-- Erased conversations: see erasure.ts. Their sequences belong to the log of updates.
CREATE TABLE conversation_updates.erasures (
	id_digest text COLLATE "C" PRIMARY KEY,
	sequence bigint NOT NULL UNIQUE,
	owner text COLLATE "C",
	created_at bigint NOT NULL,
	erased_at bigint NOT NULL
);
CREATE INDEX erasures_by_owner ON conversation_updates.erasures (owner, sequence);
