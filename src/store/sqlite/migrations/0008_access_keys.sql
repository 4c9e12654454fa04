-- Access keys that were made while the service ran: see access-keys.ts. Times are microseconds since the Unix epoch.
CREATE TABLE access_keys (
	name TEXT PRIMARY KEY,
	sha256 BLOB NOT NULL,
	-- Separated by plus signs.
	scopes TEXT NOT NULL,
	owner TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	created_by TEXT NOT NULL,
	expires_at INTEGER,
	revoked_at INTEGER,
	last_used_at INTEGER
) STRICT, WITHOUT ROWID;
