-- Beginnings of words of two characters have lists of their own. Without them, the lists of all words with such a
-- beginning are merged for each search, which takes seconds. The index is written anew.
DROP TABLE search_texts;
DROP TABLE search_title_words;
DELETE FROM search_titles;
CREATE VIRTUAL TABLE search_texts USING fts5 (
	words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2'
);
CREATE VIRTUAL TABLE search_title_words USING fts5 (
	words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2'
);
UPDATE search_progress SET version = 0, events = 0, updates = 0;
