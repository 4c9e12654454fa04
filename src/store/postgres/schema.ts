import { ServiceError } from "../../errors.ts";
import { createTables, PRERELEASE, PRERELEASE_TABLE } from "../schema.ts";
import { integer, nullable, text } from "../values.ts";
import { distribute, isCitus, isDistributed } from "./citus.ts";
import type { Connections } from "./connections.ts";
import { lockSchema, type Session } from "./transaction.ts";
import { TO_VERSION_2 } from "./version-2.ts";

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

/** The versions of the schema before and after a migration. */
interface Migrated {
	readonly from: number;
	readonly to: number;
}

/**
 * Migrates the database's schema to this release's version, in one transaction. If several processes do so at the same
 * time, one does the work. The role needs privileges to create objects only if there is something to
 * migrate.
 *
 * @param spread whether to spread the tables over the servers of Citus. A database whose tables are spread stays so: new
 *   tables are spread too.
 * @throws ServiceError `unavailable` when a newer release has migrated the database, its encoding is not UTF8, it has no
 *   Citus to spread the tables with, or it cannot be reached or changed; the cause says why
 */
export async function migrate(connections: Connections, spread = false): Promise<Migrated> {
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
		await distribute((work) =>
			connections.transaction(
				async (session) => {
					await session.query(lockSchema);
					await work(session);
				},
				{ unlimited: true },
			),
		);
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

async function migrateTables(connections: Connections): Promise<void> {
	await connections.transaction(
		async (session) => {
			await session.query(lockSchema);
			const from = await schemaVersion(session);
			if (from === SCHEMA_VERSION) return;
			const statements = from === 0 ? CREATION : TO_VERSION_2;
			await session.query(...statements.map((text) => ({ text })), {
				text: "INSERT INTO conversation_updates.schema_versions (version) VALUES ($1)",
				values: [SCHEMA_VERSION],
			});
		},
		{ unlimited: true },
	);
}

/**
 * Creates the index of titles if its extension is installed, a valid index is missing, and the role has the privileges.
 * Appends go on meanwhile; the view of conversations waits.
 */
async function indexTitles(connections: Connections): Promise<void> {
	if ((await connections.read(schemaForMissingIndex)) === undefined) return;
	await connections.transaction(
		async (session) => {
			await session.query(lockSchema);
			const schema = await schemaForMissingIndex(session);
			if (schema !== undefined)
				await session.query({ text: DROP_TITLE_INDEX }, { text: TITLE_INDEX.replace("%s", schema) });
		},
		{ unlimited: true },
	);
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
