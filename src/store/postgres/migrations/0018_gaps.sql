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

-- The number of gaps of the conversation, and when the oldest was noticed.
ALTER TABLE conversation_updates.standings ADD COLUMN gap_count bigint NOT NULL DEFAULT 0, ADD COLUMN gaps_since bigint;
CREATE INDEX standings_with_gaps ON conversation_updates.standings (conversation_id) WHERE gap_count > 0;

INSERT INTO conversation_updates.gaps
SELECT c.conversation_id, 'no_record', '', NULL, min(u.received_at)
FROM conversation_updates.conversations c JOIN conversation_updates.updates u USING (conversation_id)
WHERE c.newest_sequence IS NULL GROUP BY c.conversation_id;
UPDATE conversation_updates.standings s SET gap_count = 1, gaps_since = g.since FROM conversation_updates.gaps g
WHERE g.conversation_id = s.conversation_id;
