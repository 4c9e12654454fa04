import { createTables } from "../schema.ts";

/** Derives `usage_days` from `usage_ledger`. */
const USAGE_TRIGGERS = [
	`CREATE FUNCTION conversation_updates.add_usage_days() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO conversation_updates.usage_days (day, model, conversation, usage_id, agent_kind)
			SELECT DISTINCT (quarter - (quarter % 96 + 96) % 96) / 96, model, conversation, usage_id, agent_kind FROM after
			ON CONFLICT DO NOTHING;
			RETURN NULL;
		END
	$$`,
	`CREATE FUNCTION conversation_updates.remove_usage_days() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			DELETE FROM conversation_updates.usage_days d USING before o
			WHERE d.day = (o.quarter - (o.quarter % 96 + 96) % 96) / 96 AND d.model = o.model
				AND d.conversation = o.conversation AND d.usage_id = o.usage_id AND d.agent_kind = o.agent_kind
				AND NOT EXISTS (
					SELECT 1 FROM conversation_updates.usage_ledger l
					WHERE l.conversation = o.conversation AND l.quarter >= d.day * 96 AND l.quarter < d.day * 96 + 96
						AND l.model = o.model AND l.usage_id = o.usage_id AND l.agent_kind = o.agent_kind
				);
			RETURN NULL;
		END
	$$`,
	`CREATE TRIGGER usage_added AFTER INSERT ON conversation_updates.usage_ledger
		REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.add_usage_days()`,
	`CREATE TRIGGER usage_removed AFTER DELETE ON conversation_updates.usage_ledger
		REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.remove_usage_days()`,
];

/**
 * The statements to each version of the schema, from the one before. The first creates all tables; from release 1.0.0 on, a
 * change of the tables is a further one.
 */
export const MIGRATIONS: readonly (readonly string[])[] = [
	[
		"CREATE SCHEMA IF NOT EXISTS conversation_updates",
		`CREATE TABLE conversation_updates.schema_versions (
			version bigint PRIMARY KEY, migrated_at timestamptz NOT NULL DEFAULT now()
		)`,
		...createTables("postgres"),
		...USAGE_TRIGGERS,
	],
];

/**
 * Creates the index for the search in titles, if the extension pg_trgm is installed; `%s` stands for the schema of the
 * extension.
 *
 * The pending list of a GIN index collects new titles until it exceeds `gin_pending_list_limit`, in KiB. Every search
 * reads the whole list: 10 µs for each 8 KiB, so up to 5 ms with the server's default, 4 MiB. With a smaller limit, each
 * new title costs more.
 */
export const TITLE_INDEX = `
	CREATE INDEX CONCURRENTLY titles_by_trigram ON conversation_updates.titles USING gin (title %s.gin_trgm_ops)
	WITH (gin_pending_list_limit = 1024)
`;
export const DROP_TITLE_INDEX = "DROP INDEX CONCURRENTLY IF EXISTS conversation_updates.titles_by_trigram";
