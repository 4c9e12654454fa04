-- Totals of each sender and owner, over all of its posts. An empty owner stands for none.
CREATE TABLE conversation_updates.senders (
	owner text COLLATE "C" NOT NULL,
	sender text COLLATE "C" NOT NULL,
	first_post_at bigint NOT NULL,
	last_post_at bigint NOT NULL,
	posts bigint NOT NULL,
	records bigint NOT NULL,
	events bigint NOT NULL,
	usual_interval bigint NOT NULL,
	PRIMARY KEY (owner, sender)
) WITH (fillfactor = 10);

-- Numbers of refused posts by the beginning of a period of five minutes, and by kind. Old periods are removed.
CREATE TABLE conversation_updates.refusals (
	owner text COLLATE "C" NOT NULL,
	sender text COLLATE "C" NOT NULL,
	since bigint NOT NULL,
	kind text COLLATE "C" NOT NULL,
	count bigint NOT NULL,
	PRIMARY KEY (owner, sender, since, kind)
);

-- Counts running conversations, whose status is 2.
CREATE INDEX conversations_running ON conversation_updates.conversations (sender, owner)
	WHERE status = 2 AND sender IS NOT NULL;
