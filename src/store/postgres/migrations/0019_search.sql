-- How far the index of search comes, and which process writes it until when: see text-index.ts.
CREATE TABLE conversation_updates.search_progress (
	id bigint PRIMARY KEY CHECK (id = 1),
	version bigint NOT NULL,
	events bigint NOT NULL,
	updates bigint NOT NULL,
	holder text,
	held_until timestamptz
) WITH (fillfactor = 10);
INSERT INTO conversation_updates.search_progress VALUES (1, 0, 0, 0, NULL, NULL);

-- The words of the texts of events, without their order.
CREATE TABLE conversation_updates.search_texts (
	sequence bigint PRIMARY KEY,
	conversation_id uuid NOT NULL,
	words tsvector NOT NULL
);
-- Every search reads the whole pending list of an index: 10 µs for each 8 KiB. The server's default is 4 MiB.
CREATE INDEX search_texts_by_word ON conversation_updates.search_texts USING gin (words)
	WITH (gin_pending_list_limit = 1024);

-- The titles of conversations with their places among the events, and their words. `digest` identifies the title.
CREATE TABLE conversation_updates.search_titles (
	conversation_id uuid PRIMARY KEY,
	position bigint NOT NULL,
	sequence bigint NOT NULL,
	digest bigint NOT NULL,
	words tsvector NOT NULL
);
CREATE INDEX search_titles_by_word ON conversation_updates.search_titles USING gin (words)
	WITH (gin_pending_list_limit = 1024);
