import { ServiceError } from "../../errors.ts";
import {
	createIndexes,
	createTable,
	createTables,
	PRERELEASE,
	PRERELEASE_TABLE,
	SCHEMA as SCHEMAS,
} from "../schema.ts";
import type { Session as AnySession } from "../session.ts";
import { allTables, tableOf } from "../tables.ts";
import { integer, nullable, text } from "../values.ts";
import { deriveConversations } from "../views/conversations.ts";
import { distribute, isCitus, isDistributed } from "./citus.ts";
import type { Connections } from "./connections.ts";
import { postgresSession } from "./session.ts";
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
	"usage_ledger_by_quarter",
	"deliveries_by_state",
];

/** Tables of release 1.0.0. */
const REMOVED_TABLES = [
	"positions",
	"retention",
	"writers",
	"conversation_counts",
	"tag_key_counts",
	"tag_value_counts",
	"titles",
	"search_titles",
	"unfinished_import",
];

/** The statements that upgrade the tables of release 1.0.0. */
const TO_VERSION_2: readonly string[] = [
	// With Citus, statements that follow each other need the same connections.
	"SET LOCAL citus.multi_shard_modify_mode = 'sequential'",
	...REMOVED_INDEXES.map((name) => `DROP INDEX ${SCHEMA}${name}`),
	`ALTER TABLE ${SCHEMA}tags DROP COLUMN sequence`,
	`ALTER TABLE ${SCHEMA}events DROP COLUMN size`,
	`ALTER TABLE ${SCHEMA}updates DROP COLUMN schema_version`,
	`ALTER TABLE ${SCHEMA}search_progress DROP COLUMN holder, DROP COLUMN held_until, DROP COLUMN updates`,
	// Those of clients without a valid key had none.
	`DELETE FROM ${SCHEMA}refused_posts WHERE sender IS NULL`,
	`ALTER TABLE ${SCHEMA}refused_posts
		ALTER COLUMN sender SET NOT NULL, DROP COLUMN last_at, DROP COLUMN requests, DROP COLUMN peer`,
	`ALTER TABLE ${SCHEMA}endpoints DROP COLUMN generation`,
	`ALTER TABLE ${SCHEMA}usage_conversations RENAME COLUMN id TO conversation_id`,
	`ALTER TABLE ${SCHEMA}usage_conversations DROP COLUMN source_id`,
	`ALTER TABLE ${SCHEMA}usage_ledger RENAME COLUMN conversation TO conversation_id`,
	`ALTER TABLE ${SCHEMA}usage_days RENAME COLUMN conversation TO conversation_id`,
	`ALTER TABLE ${SCHEMA}conversations ADD COLUMN title text COLLATE "C", ADD COLUMN title_words text COLLATE "C"`,
	...createTable("postgres", tableOf("untimed_calls")),
	...createTable("postgres", tableOf("state")),
	...createTable("postgres", tableOf("scores")),
	...createTable("postgres", tableOf("score_values")),
	`UPDATE ${SCHEMA}state s SET newest_update = p.newest_update, newest_event = p.newest_event, rewrites = p.rewrites
		FROM ${SCHEMA}positions p`,
	...REMOVED_TABLES.map((name) => `DROP TABLE ${SCHEMA}${name}`),
	...allTables("postgres")
		.flatMap((table) => createIndexes("postgres", table))
		.map((statement) => statement.replace(" INDEX ", " INDEX IF NOT EXISTS ")),
];

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
		if (from > 0) await deriveAll(postgresSession(session));
	});
}

/** Number of conversations that a migration derives together. */
const TOGETHER = 128;

/** Derives the view of conversations by the rules of this release, with the titles of conversations. */
async function deriveAll(session: AnySession): Promise<void> {
	const found = await session.all(`SELECT conversation_id FROM ${SCHEMA}conversations`);
	for (let at = 0; at < found.length; at += TOGETHER)
		await deriveConversations(
			session,
			found.slice(at, at + TOGETHER).map(({ conversation_id }) => text(conversation_id)),
		);
}

function refused(reason: string): ServiceError {
	return new ServiceError("unavailable", "the store's database cannot be opened", { cause: new Error(reason) });
}
