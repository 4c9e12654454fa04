-- The conversation of which a conversation is a fork. Existing rows get it when their summaries are derived anew.
ALTER TABLE conversations ADD COLUMN source_id TEXT;
CREATE INDEX conversations_by_source ON conversations (source_id, sequence) WHERE source_id IS NOT NULL;
