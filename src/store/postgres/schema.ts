import { createTables } from "../schema.ts";

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
