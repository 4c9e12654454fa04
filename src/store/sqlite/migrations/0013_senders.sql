-- Totals of each sender and owner, over all of its posts. An empty owner stands for none.
CREATE TABLE senders (
	owner TEXT NOT NULL,
	sender TEXT NOT NULL,
	first_post_at INTEGER NOT NULL,
	last_post_at INTEGER NOT NULL,
	posts INTEGER NOT NULL,
	records INTEGER NOT NULL,
	events INTEGER NOT NULL,
	usual_interval INTEGER NOT NULL,
	PRIMARY KEY (owner, sender)
) STRICT, WITHOUT ROWID;

-- Numbers of refused posts by the beginning of a period of five minutes, and by kind. Old periods are removed.
CREATE TABLE refusals (
	owner TEXT NOT NULL,
	sender TEXT NOT NULL,
	since INTEGER NOT NULL,
	kind TEXT NOT NULL,
	count INTEGER NOT NULL,
	PRIMARY KEY (owner, sender, since, kind)
) STRICT, WITHOUT ROWID;

-- Counts running conversations, whose status is 2.
CREATE INDEX conversations_running ON conversations (sender, owner) WHERE status = 2 AND sender IS NOT NULL;
