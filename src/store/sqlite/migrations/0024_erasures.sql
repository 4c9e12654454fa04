-- Erased conversations: see erasure.ts. Their sequences belong to the log of updates.
CREATE TABLE erasures (
	id_digest TEXT PRIMARY KEY,
	sequence INTEGER NOT NULL UNIQUE,
	owner TEXT,
	created_at INTEGER NOT NULL,
	erased_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX erasures_by_owner ON erasures (owner, sequence);

-- Whether files may still have something of erased conversations: see purge.ts. With 'usermerge' 2, its merges of the
-- indexes of words go on until all is in one segment.
ALTER TABLE store_state ADD COLUMN must_purge INTEGER NOT NULL DEFAULT 0;
INSERT INTO search_texts (search_texts, rank) VALUES ('usermerge', 2);
INSERT INTO search_title_words (search_title_words, rank) VALUES ('usermerge', 2);
INSERT INTO titles (titles, rank) VALUES ('usermerge', 2);
