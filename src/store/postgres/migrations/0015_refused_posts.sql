-- Posts that were refused: see refused-posts.ts. Times are microseconds since the Unix epoch.
CREATE TABLE conversation_updates.refused_posts (
	id bigint PRIMARY KEY,
	received_at bigint NOT NULL,
	last_at bigint NOT NULL,
	-- Number of requests that the row stands for.
	requests bigint NOT NULL,
	sender text COLLATE "C",
	owner text COLLATE "C",
	-- Address of a client whose requests had no valid key.
	peer text COLLATE "C",
	route text COLLATE "C" NOT NULL,
	form text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL,
	-- JSON.
	reasons text COLLATE "C" NOT NULL,
	conversation_id uuid,
	-- Bytes of the body as it arrived.
	size bigint NOT NULL,
	accepted boolean NOT NULL,
	retried_at bigint,
	-- Bytes that count towards the room for refused posts.
	bytes bigint NOT NULL,
	-- Compressed and encrypted.
	body bytea
);
-- In the table's definition only PostgreSQL 16 and later know it.
ALTER TABLE conversation_updates.refused_posts ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX refused_posts_by_owner ON conversation_updates.refused_posts (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX refused_posts_by_conversation ON conversation_updates.refused_posts (conversation_id)
	WHERE conversation_id IS NOT NULL;
CREATE INDEX refused_posts_by_peer ON conversation_updates.refused_posts (id) WHERE peer IS NOT NULL;
-- Sums up the room without reading the rows.
CREATE INDEX refused_posts_room ON conversation_updates.refused_posts (accepted, id, bytes);
