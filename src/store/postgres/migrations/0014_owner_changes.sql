-- How often conversations were given owners. Processes that keep entries in memory read them again when it grows.
ALTER TABLE conversation_updates.positions ADD COLUMN owner_changes bigint NOT NULL DEFAULT 0;
