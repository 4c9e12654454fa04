import { readdirSync, readFileSync } from "node:fs";

/** A step that brings the schema of a database from one version to the next. */
export interface Migration {
	/** The schema version after the step. The first is 1. */
	readonly version: number;
	readonly sql: string;
}

/** A table that databases from before release 1.0.0 have and later ones do not. */
export const PRERELEASE_TABLE = "derivations";
/** Why such a database is refused. */
export const PRERELEASE =
	"a version before 1.0.0 wrote the database; export it with that version and import the export (docs/operations.md)";

/**
 * Reads the migrations of an engine: files such as `0001_tables.sql`, each with the SQL for the version in its name. A
 * step that SQL cannot express stands in the code of the engine.
 *
 * @param folder ends in a slash
 * @throws Error when a version is missing or there twice
 */
export function readMigrations(folder: URL): readonly Migration[] {
	const names = readdirSync(folder).sort();
	return names.map((name, index) => {
		const version = index + 1;
		if (!new RegExp(`^${String(version).padStart(4, "0")}_[a-z_]+\\.sql$`).test(name))
			throw new Error(`the migration ${name} is not the one to schema version ${version}`);
		return { version, sql: readFileSync(new URL(name, folder), "utf8") };
	});
}
