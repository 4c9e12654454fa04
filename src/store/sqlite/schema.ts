import type { DatabaseSync } from "node:sqlite";
import { PRERELEASE, PRERELEASE_TABLE, readMigrations } from "../migrations.ts";
import { integer } from "../values.ts";

const MIGRATIONS = readMigrations(new URL("./migrations/", import.meta.url));

/** Version of the schema, stored as `user_version`. */
export const SCHEMA_VERSION = MIGRATIONS.length;

/**
 * Marks a database as this service's: "CUWS" (https://www.sqlite.org/pragma.html#pragma_application_id). The first
 * migration sets it.
 */
export const APPLICATION_ID = 0x43555753;

/**
 * Creates the tables in an empty database, or upgrades those of an earlier version. The caller has begun a transaction.
 *
 * @throws Error as {@link schemaVersion}
 */
export function createSchema(database: DatabaseSync): void {
	for (const { version, sql } of MIGRATIONS.slice(schemaVersion(database)))
		database.exec(`${sql} PRAGMA user_version = ${version};`);
}

/**
 * Returns the schema version of a database; 0 when the database is empty.
 *
 * @throws Error when a newer release or one before 1.0.0 wrote the database, or when it belongs to another program
 */
export function schemaVersion(database: DatabaseSync): number {
	const pragma = (name: "application_id" | "user_version") =>
		integer(database.prepare(`PRAGMA ${name}`, { readBigInts: true }).get()?.[name]);
	const [id, version] = [pragma("application_id"), pragma("user_version")];
	const tables = new Set(
		database
			.prepare("SELECT name FROM sqlite_schema")
			.all()
			.map(({ name }) => name),
	);
	if (id === 0 && version === 0 && tables.size === 0) return 0;
	if (id !== APPLICATION_ID || version < 1) throw new Error("the file is a database of another program");
	if (tables.has(PRERELEASE_TABLE)) throw new Error(PRERELEASE);
	if (version > SCHEMA_VERSION)
		throw new Error(
			`the database has schema version ${version}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
		);
	return version;
}
