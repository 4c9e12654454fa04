-- The owner of the conversation, for logs of an owner.
ALTER TABLE conversation_updates.updates ADD COLUMN owner text COLLATE "C";
UPDATE conversation_updates.updates u SET owner = c.owner FROM conversation_updates.conversations c
	WHERE c.conversation_id = u.conversation_id AND c.owner IS NOT NULL;
CREATE INDEX updates_by_owner ON conversation_updates.updates (owner, sequence) WHERE owner IS NOT NULL;
ALTER TABLE conversation_updates.events ADD COLUMN owner text COLLATE "C";
UPDATE conversation_updates.events e SET owner = a.owner FROM conversation_updates.activities a
	WHERE a.conversation_id = e.conversation_id AND a.owner IS NOT NULL;
CREATE INDEX events_by_owner ON conversation_updates.events (owner, sequence) WHERE owner IS NOT NULL;

-- How far the logs of an owner were pruned.
CREATE INDEX pruned_by_owner ON conversation_updates.pruned (log, owner, through) WHERE owner IS NOT NULL;
