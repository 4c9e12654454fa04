-- Work that one process at a time does, such as comparing with an agent server. Times are microseconds since the Unix epoch.
CREATE TABLE conversation_updates.claims (
	name text PRIMARY KEY,
	holder text NOT NULL,
	until bigint NOT NULL
);
