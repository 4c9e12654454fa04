-- The stored form of the id of the model's response that an event shows.
ALTER TABLE events ADD COLUMN llm_response_id TEXT;
CREATE INDEX events_by_response ON events (activity, llm_response_id) WHERE llm_response_id IS NOT NULL;

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
-- `start` are in quarters of an hour.
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
