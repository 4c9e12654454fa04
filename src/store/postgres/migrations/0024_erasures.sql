-- How often stored entries changed: conversations were given owners, or were erased. Processes that keep entries in memory
-- read them again when it grows.
ALTER TABLE conversation_updates.positions RENAME COLUMN owner_changes TO rewrites;

-- Erased conversations: see erasure.ts. Their sequences belong to the log of updates.
CREATE TABLE conversation_updates.erasures (
	id_digest text COLLATE "C" PRIMARY KEY,
	sequence bigint NOT NULL UNIQUE,
	owner text COLLATE "C",
	created_at bigint NOT NULL,
	erased_at bigint NOT NULL
);
CREATE INDEX erasures_by_owner ON conversation_updates.erasures (owner, sequence);
