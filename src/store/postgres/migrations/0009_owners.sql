-- Who posted a conversation first: the name of the access key or certificate, and the owner of what it posts. NULL for
-- conversations that were first stored before, and for no owner. A conversation without a record has them in `activities`
-- only; else both tables have the same.
ALTER TABLE conversation_updates.conversations ADD COLUMN sender text COLLATE "C", ADD COLUMN owner text COLLATE "C";
CREATE INDEX conversations_by_sender ON conversation_updates.conversations (sender, sequence);
CREATE INDEX conversations_by_owner ON conversation_updates.conversations (owner, sequence);
ALTER TABLE conversation_updates.activities ADD COLUMN sender text COLLATE "C", ADD COLUMN owner text COLLATE "C";
CREATE INDEX activities_by_owner ON conversation_updates.activities (owner);

-- Who posted an update or an event.
ALTER TABLE conversation_updates.updates ADD COLUMN sender text;
ALTER TABLE conversation_updates.events ADD COLUMN sender text;

-- The owner of the conversation when its entries were pruned.
ALTER TABLE conversation_updates.pruned ADD COLUMN owner text;
