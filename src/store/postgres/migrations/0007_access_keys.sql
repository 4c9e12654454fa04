-- Access keys that were made while the service ran: see access-keys.ts. Times are microseconds since the Unix epoch.
CREATE TABLE conversation_updates.access_keys (
	-- Names are ordered as SQLite orders them.
	name text COLLATE "C" PRIMARY KEY,
	sha256 bytea NOT NULL,
	-- Separated by plus signs.
	scopes text NOT NULL,
	owner text NOT NULL,
	created_at bigint NOT NULL,
	created_by text NOT NULL,
	expires_at bigint,
	revoked_at bigint,
	last_used_at bigint
);
