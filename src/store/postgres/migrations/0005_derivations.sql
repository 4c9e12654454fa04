-- How far the data of each kind that is derived from records has been derived by the rules of a version: see
-- derivation.ts.
CREATE TABLE conversation_updates.derivations (
	name text PRIMARY KEY,
	version bigint NOT NULL,
	through bigint NOT NULL
);
