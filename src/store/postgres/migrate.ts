import { ServiceError } from "../../errors.ts";
import { integer, nullable, text } from "../values.ts";
import type { Connections } from "./connections.ts";
import { lockSchema } from "./locks.ts";
import { MIGRATIONS, TITLE_INDEX } from "./schema.ts";
import type { Session } from "./transaction.ts";

/**
 * Brings the database's schema to this release's version, each version in a transaction of its own. Of several processes
 * that do it at a time one does the work. Rights to create are needed only if there is something to do.
 *
 * @returns the version before, and the present one
 * @throws ServiceError `unavailable` when a newer release has migrated the database, it does not hold UTF-8, or it cannot
 *   be reached or changed; the cause says why
 */
export async function migrate(connections: Connections): Promise<{ readonly from: number; readonly to: number }> {
	const from = await connections.read(async (session) => {
		const [[row] = []] = await session.query({ text: "SELECT current_setting('server_encoding') AS encoding" });
		const encoding = text(row?.encoding);
		if (encoding !== "UTF8") throw refused(`the database's encoding is ${encoding}, and must be UTF8`);
		return await schemaVersion(session);
	});
	for (let version = from; version < MIGRATIONS.length; version++) await migrateTo(connections, version + 1);
	await indexTitles(connections);
	return { from, to: MIGRATIONS.length };
}

/**
 * Version of the schema; 0 when there is none.
 *
 * @throws ServiceError `unavailable` when a newer release has migrated the database
 */
export async function schemaVersion(session: Session): Promise<number> {
	const found = await session.query({
		text: "SELECT to_regclass('conversation_updates.schema_versions') IS NOT NULL AS found",
	});
	if (found[0]?.[0]?.found !== true) return 0;
	const [[row] = []] = await session.query({
		text: "SELECT max(version) AS version FROM conversation_updates.schema_versions",
	});
	const version = nullable(integer, row?.version) ?? 0;
	if (version > MIGRATIONS.length)
		throw refused(
			`the database has schema version ${version}, written by a newer release; this one knows up to ${MIGRATIONS.length}`,
		);
	return version;
}

async function migrateTo(connections: Connections, version: number): Promise<void> {
	await connections.transaction(
		async (session) => {
			await session.query(lockSchema);
			if ((await schemaVersion(session)) >= version) return;
			if (version === 1)
				await session.query(
					{ text: "CREATE SCHEMA IF NOT EXISTS conversation_updates" },
					{
						text: `CREATE TABLE conversation_updates.schema_versions (
							version bigint PRIMARY KEY, migrated_at timestamptz NOT NULL DEFAULT now()
						)`,
					},
				);
			for (const statement of (MIGRATIONS[version - 1] ?? "").split(/;\s*$/m))
				if (statement.trim() !== "") await session.query({ text: statement });
			await session.query({
				text: "INSERT INTO conversation_updates.schema_versions (version) VALUES ($1)",
				values: [version],
			});
		},
		{ unlimited: true },
	);
}

/** Makes the index of titles if the extension that it needs is there, the index is not, and the role may. */
async function indexTitles(connections: Connections): Promise<void> {
	const extension = await connections.read((session) =>
		session.query({
			text: `
				SELECT quote_ident(n.nspname) AS schema FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
				JOIN pg_class t ON t.oid = 'conversation_updates.titles'::regclass
				WHERE e.extname = 'pg_trgm' AND pg_has_role(t.relowner, 'USAGE')
					AND to_regclass('conversation_updates.titles_by_trigram') IS NULL
			`,
		}),
	);
	const row = extension[0]?.[0];
	if (row === undefined) return;
	await connections.transaction(
		async (session) => {
			await session.query(lockSchema);
			await session.query({ text: TITLE_INDEX.replace("%s", text(row.schema)) });
		},
		{ unlimited: true },
	);
}

function refused(reason: string): ServiceError {
	return new ServiceError("unavailable", "the store's database cannot be opened", { cause: new Error(reason) });
}
