-- The sequences of the updates and events of conversations with an owner, in the order of an owner's logs. They are no
-- columns of the logs, because a conversation can get another owner, and rows with records are costly to write again.
CREATE TABLE updates_of_owners (
	owner TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	PRIMARY KEY (owner, sequence)
) STRICT, WITHOUT ROWID;
INSERT INTO updates_of_owners
SELECT c.owner, u.sequence FROM conversations c JOIN updates u ON u.conversation = c.id WHERE c.owner IS NOT NULL;
CREATE TABLE events_of_owners (
	owner TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	PRIMARY KEY (owner, sequence)
) STRICT, WITHOUT ROWID;
INSERT INTO events_of_owners
SELECT a.owner, e.sequence FROM activities a JOIN events e ON e.activity = a.id WHERE a.owner IS NOT NULL;

-- How far the logs of an owner were pruned.
CREATE INDEX pruned_by_owner ON pruned (log, owner, through) WHERE owner IS NOT NULL;
