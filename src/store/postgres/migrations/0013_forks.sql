-- The conversation of which a conversation is a fork. Existing rows get it when their summaries are derived anew.
ALTER TABLE conversation_updates.conversations ADD COLUMN source_id text COLLATE "C";
CREATE INDEX conversations_by_source ON conversation_updates.conversations (source_id, sequence)
	WHERE source_id IS NOT NULL;
