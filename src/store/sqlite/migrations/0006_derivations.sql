-- How far the data of each kind that is derived from records has been derived by the rules of a version: see
-- derivation.ts.
CREATE TABLE derivations (
	name TEXT PRIMARY KEY,
	version INTEGER NOT NULL,
	through INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
