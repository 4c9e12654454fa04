-- The stored form of the id of the model's response that an event shows.
ALTER TABLE conversation_updates.events ADD COLUMN llm_response_id text COLLATE "C";
CREATE INDEX events_by_response ON conversation_updates.events (conversation_id, llm_response_id)
	WHERE llm_response_id IS NOT NULL;

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
-- `start` are in quarters of an hour.
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
