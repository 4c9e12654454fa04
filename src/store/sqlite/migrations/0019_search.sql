-- How far the index of search comes: see text-index.ts.
CREATE TABLE search_progress (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	version INTEGER NOT NULL,
	events INTEGER NOT NULL,
	updates INTEGER NOT NULL
) STRICT;
INSERT INTO search_progress VALUES (1, 0, 0, 0);

-- The words of the texts of events, without their order, and a word for the conversation. The row ids are the sequences of
-- the events. The tokenizer changes nothing of the words, which have no other ASCII characters than letters and digits.
CREATE VIRTUAL TABLE search_texts USING fts5 (
	words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii'
);

-- The titles of conversations with their places among the events, and their words. The row ids of both tables are those of
-- `conversations`. `digest` identifies the title.
CREATE TABLE search_titles (
	conversation INTEGER PRIMARY KEY,
	position INTEGER NOT NULL,
	sequence INTEGER NOT NULL,
	digest INTEGER NOT NULL
) STRICT;
CREATE VIRTUAL TABLE search_title_words USING fts5 (
	words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii'
);
