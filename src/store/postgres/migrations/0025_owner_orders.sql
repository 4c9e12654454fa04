-- Lists of an owner in each order.
CREATE INDEX conversations_of_owner_by_created ON conversation_updates.conversations (owner, created_at, sequence)
	WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_cost ON conversation_updates.conversations (owner, cost, sequence)
	WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_tokens ON conversation_updates.conversations (owner, tokens, sequence)
	WHERE owner IS NOT NULL;
-- The owner of the conversation.
ALTER TABLE conversation_updates.standings ADD COLUMN owner text COLLATE "C";
UPDATE conversation_updates.standings s SET owner = c.owner FROM conversation_updates.conversations c
	WHERE c.conversation_id = s.conversation_id AND c.owner IS NOT NULL;
CREATE INDEX standings_of_owner_by_activity ON conversation_updates.standings (owner, activity_at) WHERE owner IS NOT NULL;
