-- Values that lists order by. `tokens` is the sum of prompt and completion tokens. `cost` and `tokens` of the conversations
-- that are stored already are derived from their records at the next start.
ALTER TABLE conversations ADD COLUMN cost REAL NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;
-- When the latest event happened; without events, the time of the current update. Whether the summary shows an error.
ALTER TABLE conversations ADD COLUMN activity_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN has_error INTEGER NOT NULL DEFAULT 0;
UPDATE conversations SET activity_at = coalesce(
	(SELECT last_at FROM activities a WHERE a.conversation_id = conversations.conversation_id), updated_at, 0
);
CREATE INDEX conversations_by_cost ON conversations (cost, sequence);
CREATE INDEX conversations_by_tokens ON conversations (tokens, sequence);
CREATE INDEX conversations_by_activity ON conversations (activity_at, sequence);
CREATE INDEX conversations_with_error ON conversations (sequence) WHERE has_error = 1;
DROP INDEX conversations_by_created;
CREATE INDEX conversations_by_created ON conversations (created_at, sequence);
