-- Values that lists order by. `tokens` is the sum of prompt and completion tokens. `cost` and `tokens` of the conversations
-- that are stored already are derived from their records at the next start.
ALTER TABLE conversation_updates.conversations ADD COLUMN cost double precision NOT NULL DEFAULT 0;
ALTER TABLE conversation_updates.conversations ADD COLUMN tokens bigint NOT NULL DEFAULT 0;
CREATE INDEX conversations_by_cost ON conversation_updates.conversations (cost, sequence);
CREATE INDEX conversations_by_tokens ON conversation_updates.conversations (tokens, sequence);
DROP INDEX conversation_updates.conversations_by_created;
CREATE INDEX conversations_by_created ON conversation_updates.conversations (created_at, sequence);

-- Of each conversation with a record: when its latest event happened (without events, the time of the current update), and
-- whether its summary shows an error. They have a table of their own, because events alone change them.
CREATE TABLE conversation_updates.standings (
	conversation_id uuid PRIMARY KEY,
	activity_at bigint NOT NULL,
	has_error boolean NOT NULL
) WITH (fillfactor = 80);
INSERT INTO conversation_updates.standings
SELECT c.conversation_id, coalesce(a.last_at, c.updated_at, 0), false
FROM conversation_updates.conversations c
LEFT JOIN conversation_updates.activities a ON a.conversation_id = c.conversation_id;
CREATE INDEX standings_by_activity ON conversation_updates.standings (activity_at);
CREATE INDEX standings_with_error ON conversation_updates.standings (conversation_id) WHERE has_error;
