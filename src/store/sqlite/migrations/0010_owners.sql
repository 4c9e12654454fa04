-- Who posted a conversation first: the name of the access key or certificate, and the owner of what it posts. NULL for
-- conversations that were first stored before, and for no owner. A conversation without a record has them in `activities`
-- only; else both tables have the same.
ALTER TABLE conversations ADD COLUMN sender TEXT;
ALTER TABLE conversations ADD COLUMN owner TEXT;
CREATE INDEX conversations_by_sender ON conversations (sender, sequence);
CREATE INDEX conversations_by_owner ON conversations (owner, sequence);
ALTER TABLE activities ADD COLUMN sender TEXT;
ALTER TABLE activities ADD COLUMN owner TEXT;
CREATE INDEX activities_by_owner ON activities (owner);

-- Who posted an update or an event.
ALTER TABLE updates ADD COLUMN sender TEXT;
ALTER TABLE events ADD COLUMN sender TEXT;

-- The owner of the conversation when its entries were pruned.
ALTER TABLE pruned ADD COLUMN owner TEXT;
