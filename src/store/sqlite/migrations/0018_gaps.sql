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

-- The number of gaps of the conversation, and when the oldest was noticed.
ALTER TABLE conversations ADD COLUMN gap_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN gaps_since INTEGER;
CREATE INDEX conversations_with_gaps ON conversations (sequence) WHERE gap_count > 0;

INSERT INTO gaps
SELECT c.conversation_id, 'no_record', '', NULL, min(u.received_at)
FROM conversations c JOIN updates u ON u.conversation = c.id
WHERE c.newest_sequence IS NULL GROUP BY c.id;
UPDATE conversations SET gap_count = 1, gaps_since = g.since FROM gaps g
WHERE g.conversation_id = conversations.conversation_id;
