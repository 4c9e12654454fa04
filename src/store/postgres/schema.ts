import { ServiceError } from "../../errors.ts";
import { NOT_REPORTED } from "../condition.ts";
import {
	createIndexes,
	createTable,
	createTables,
	PRERELEASE,
	PRERELEASE_TABLE,
	SCHEMA as SCHEMAS,
} from "../schema.ts";
import { allTables, tableOf } from "../tables.ts";
import { integer, nullable, text } from "../values.ts";
import { distribute, isCitus, isDistributed } from "./citus.ts";
import type { Connections } from "./connections.ts";
import { lockSchema, type Session } from "./transaction.ts";

/** The statements that create the tables of the present version in an empty database. */
export const CREATION: readonly string[] = [
	"CREATE SCHEMA IF NOT EXISTS conversation_updates",
	`CREATE TABLE conversation_updates.schema_versions (
		version bigint PRIMARY KEY, migrated_at timestamptz NOT NULL DEFAULT now()
	)`,
	...createTables("postgres"),
];

/** Version of the schema, the largest in `schema_versions`. Release 1.0.0 wrote version 1. */
export const SCHEMA_VERSION = 2;

const SCHEMA = SCHEMAS.postgres;

/** Indexes of release 1.0.0 that have other columns now, or none. */
const REMOVED_INDEXES = [
	"conversations_by_status",
	"conversations_by_agent_kind",
	"conversations_by_model",
	"conversations_by_parent",
	"conversations_by_source",
	"conversations_by_sender",
	"conversations_by_owner",
	"conversations_of_owner_by_activity",
	"conversations_of_owner_by_created",
	"conversations_of_owner_by_cost",
	"conversations_of_owner_by_tokens",
	"tags_by_key",
	"tags_by_value",
];

/** The statements that upgrade the tables of release 1.0.0. */
const TO_VERSION_2: readonly string[] = [
	// With Citus, statements that follow each other need the same connections.
	"SET LOCAL citus.multi_shard_modify_mode = 'sequential'",
	...REMOVED_INDEXES.map((name) => `DROP INDEX ${SCHEMA}${name}`),
	`ALTER TABLE ${SCHEMA}tags DROP COLUMN sequence`,
	`ALTER TABLE ${SCHEMA}events DROP COLUMN size`,
	`ALTER TABLE ${SCHEMA}updates DROP COLUMN schema_version`,
	`ALTER TABLE ${SCHEMA}search_progress DROP COLUMN holder, DROP COLUMN held_until`,
	`ALTER TABLE ${SCHEMA}unfinished_import DROP COLUMN manifest`,
	// Those of clients without a valid key had none.
	`DELETE FROM ${SCHEMA}refused_posts WHERE sender IS NULL`,
	`ALTER TABLE ${SCHEMA}refused_posts
		ALTER COLUMN sender SET NOT NULL, DROP COLUMN last_at, DROP COLUMN requests, DROP COLUMN peer`,
	// The summary that 1.0.0 stored left out a cost of 0.
	`UPDATE ${SCHEMA}conversations SET cost = ${NOT_REPORTED} WHERE cost = 0`,
	`UPDATE ${SCHEMA}conversations SET tokens = ${NOT_REPORTED} WHERE NOT EXISTS (
		SELECT 1 FROM ${SCHEMA}heads h WHERE h.conversation_id = ${SCHEMA}conversations.conversation_id
	)`,
	`ALTER TABLE ${SCHEMA}usage_conversations RENAME COLUMN id TO conversation_id`,
	`ALTER TABLE ${SCHEMA}usage_conversations DROP COLUMN source_id`,
	`ALTER TABLE ${SCHEMA}usage_ledger RENAME COLUMN conversation TO conversation_id`,
	`ALTER TABLE ${SCHEMA}usage_days RENAME COLUMN conversation TO conversation_id`,
	// Rows of titles are found by the sequence of an update that had the title, and search has their words.
	`ALTER TABLE ${SCHEMA}titles ADD COLUMN sequence bigint, ADD COLUMN words tsvector`,
	`UPDATE ${SCHEMA}titles t SET sequence = c.sequence FROM ${SCHEMA}conversations c
		WHERE c.conversation_id = t.conversation_id`,
	`DELETE FROM ${SCHEMA}titles WHERE sequence IS NULL`,
	`ALTER TABLE ${SCHEMA}titles DROP CONSTRAINT titles_pkey`,
	`ALTER TABLE ${SCHEMA}titles ADD PRIMARY KEY (conversation_id, sequence)`,
	`DROP TABLE ${SCHEMA}search_titles`,
	`UPDATE ${SCHEMA}search_progress SET updates = 0`,
	...createTable("postgres", tableOf("postgres", "untimed_calls")),
	...createTable("postgres", tableOf("postgres", "state")),
	`UPDATE ${SCHEMA}state s SET newest_update = p.newest_update, newest_event = p.newest_event, rewrites = p.rewrites
		FROM ${SCHEMA}positions p`,
	...["positions", "retention", "writers", "conversation_counts", "tag_key_counts", "tag_value_counts"].map(
		(name) => `DROP TABLE ${SCHEMA}${name}`,
	),
	...allTables("postgres")
		.flatMap((table) => createIndexes("postgres", table))
		.map((statement) => statement.replace(" INDEX ", " INDEX IF NOT EXISTS ")),
];

/**
 * Creates the index for the search in titles, if the extension pg_trgm is installed; `%s` stands for the schema of the
 * extension.
 *
 * The pending list of a GIN index collects new titles until it exceeds `gin_pending_list_limit`, in KiB. Every search
 * reads the whole list: 10 µs for each 8 KiB, so up to 5 ms with the server's default, 4 MiB. With a smaller limit, each
 * new title costs more.
 */
const TITLE_INDEX = `
	CREATE INDEX titles_by_trigram ON conversation_updates.titles USING gin (title %s.gin_trgm_ops)
	WITH (gin_pending_list_limit = 1024)
`;
// An interrupted CREATE INDEX CONCURRENTLY of release 1.0.0 left an invalid index.
const DROP_TITLE_INDEX = "DROP INDEX IF EXISTS conversation_updates.titles_by_trigram";

/**
 * Migrates the database's schema to this release's version, in one transaction. If several processes do so at the same
 * time, one does the work. The role needs privileges to create objects only if there is something to migrate.
 *
 * @param spread whether to spread the tables over the servers of Citus. A database whose tables are spread stays so: new
 *   tables are spread too.
 * @returns the versions of the schema before and after
 * @throws ServiceError `unavailable` when a newer release has migrated the database, its encoding is not UTF8, it has no
 *   Citus to spread the tables with, or it cannot be reached or changed; the cause says why
 */
export async function migrate(connections: Connections, spread = false) {
	const from = await connections.read(async (session) => {
		const [[row] = []] = await session.query({ text: "SELECT current_setting('server_encoding') AS encoding" });
		const encoding = text(row?.encoding);
		if (encoding !== "UTF8") throw refused(`the database's encoding is ${encoding}, and must be UTF8`);
		if (spread && !(await isCitus(session)))
			throw refused("its tables cannot be distributed without Citus: the database has no extension citus");
		return await schemaVersion(session);
	});
	if (from < SCHEMA_VERSION) await migrateTables(connections);
	if (spread || (from < SCHEMA_VERSION && (await connections.read(isDistributed))))
		await distribute((work) => withSchema(connections, work));
	await indexTitles(connections);
	return { from, to: SCHEMA_VERSION };
}

/**
 * Returns the version of the schema; 0 when there is no schema.
 *
 * @throws ServiceError `unavailable` when a newer release, or one before 1.0.0, has migrated the database
 */
export async function schemaVersion(session: Session): Promise<number> {
	const [[found] = []] = await session.query({
		text: `
			SELECT to_regclass('conversation_updates.schema_versions') IS NOT NULL AS versions,
				to_regclass('conversation_updates.${PRERELEASE_TABLE}') IS NOT NULL AS prerelease
		`,
	});
	if (found?.versions !== true) return 0;
	if (found.prerelease === true) throw refused(PRERELEASE);
	const [[row] = []] = await session.query({
		text: "SELECT max(version) AS version FROM conversation_updates.schema_versions",
	});
	const version = nullable(integer, row?.version) ?? 0;
	if (version > SCHEMA_VERSION)
		throw refused(
			`the database has schema version ${version}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
		);
	return version;
}

/** Runs work in a transaction without limits, while no other process changes the schema. */
function withSchema(connections: Connections, work: (session: Session) => Promise<void>): Promise<void> {
	return connections.transaction(
		async (session) => {
			await session.query(lockSchema);
			await work(session);
		},
		{ unlimited: true },
	);
}

function migrateTables(connections: Connections): Promise<void> {
	return withSchema(connections, async (session) => {
		const from = await schemaVersion(session);
		if (from === SCHEMA_VERSION) return;
		const statements = from === 0 ? CREATION : TO_VERSION_2;
		await session.query(...statements.map((text) => ({ text })), {
			text: "INSERT INTO conversation_updates.schema_versions (version) VALUES ($1)",
			values: [SCHEMA_VERSION],
		});
	});
}

/**
 * Creates the index of titles if its extension is installed, a valid index is missing, and the role has the privileges.
 * Appends go on meanwhile; the view of conversations waits.
 */
async function indexTitles(connections: Connections): Promise<void> {
	if ((await connections.read(schemaForMissingIndex)) === undefined) return;
	await withSchema(connections, async (session) => {
		const schema = await schemaForMissingIndex(session);
		if (schema !== undefined)
			await session.query({ text: DROP_TITLE_INDEX }, { text: TITLE_INDEX.replace("%s", schema) });
	});
}

/**
 * Returns the schema of the extension pg_trgm; undefined when the extension is missing, when the index of titles is there
 * and valid, or when the role must not create it.
 */
async function schemaForMissingIndex(session: Session): Promise<string | undefined> {
	const [[row] = []] = await session.query({
		text: `
			SELECT quote_ident(n.nspname) AS schema FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
			JOIN pg_class t ON t.oid = 'conversation_updates.titles'::regclass
			WHERE e.extname = 'pg_trgm' AND pg_has_role(t.relowner, 'USAGE') AND NOT EXISTS (
				SELECT 1 FROM pg_index i
				WHERE i.indexrelid = to_regclass('conversation_updates.titles_by_trigram') AND i.indisvalid
			)
		`,
	});
	return row && text(row.schema);
}

function refused(reason: string): ServiceError {
	return new ServiceError("unavailable", "the store's database cannot be opened", { cause: new Error(reason) });
}
