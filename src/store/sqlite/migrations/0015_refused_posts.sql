-- Posts that were refused: see refused-posts.ts. Times are microseconds since the Unix epoch.
CREATE TABLE refused_posts (
	id INTEGER PRIMARY KEY,
	received_at INTEGER NOT NULL,
	last_at INTEGER NOT NULL,
	-- Number of requests that the row stands for.
	requests INTEGER NOT NULL,
	sender TEXT,
	owner TEXT,
	-- Address of a client whose requests had no valid key.
	peer TEXT,
	route TEXT NOT NULL,
	form TEXT NOT NULL,
	kind TEXT NOT NULL,
	-- JSON.
	reasons TEXT NOT NULL,
	conversation_id TEXT,
	-- Bytes of the body as it arrived.
	size INTEGER NOT NULL,
	accepted INTEGER NOT NULL,
	retried_at INTEGER,
	-- Bytes that count towards the room for refused posts.
	bytes INTEGER NOT NULL,
	-- Compressed and encrypted.
	body BLOB
) STRICT;
CREATE INDEX refused_posts_by_owner ON refused_posts (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX refused_posts_by_conversation ON refused_posts (conversation_id) WHERE conversation_id IS NOT NULL;
CREATE INDEX refused_posts_by_peer ON refused_posts (id) WHERE peer IS NOT NULL;
-- Sums up the room without reading the rows.
CREATE INDEX refused_posts_room ON refused_posts (accepted, id, bytes);
