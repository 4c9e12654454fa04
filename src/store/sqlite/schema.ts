import type { DatabaseSync } from "node:sqlite";
import { createTables, PRERELEASE, PRERELEASE_TABLE } from "../schema.ts";
import { integer } from "../values.ts";
import { INDEXES_OF_WORDS } from "./text-index.ts";
import { toVersion2 } from "./version-2.ts";

/** Marks a database as this service's: "CUWS" (https://www.sqlite.org/pragma.html#pragma_application_id). */
export const APPLICATION_ID = 0x43555753;

/**
 * Creates the tables in an empty database, or upgrades those of an earlier version. The caller has begun a transaction.
 *
 * @throws Error as {@link schemaVersion}
 */
export function createSchema(database: DatabaseSync): void {
	const from = schemaVersion(database);
	if (from === 0)
		for (const statement of [
			`PRAGMA application_id = ${APPLICATION_ID}`,
			...createTables("sqlite"),
			...INDEXES_OF_WORDS,
		])
			database.exec(statement);
	if (from === 1) toVersion2(database);
	if (from < SCHEMA_VERSION) database.exec(`PRAGMA user_version = ${SCHEMA_VERSION}`);
}

/** Version of the schema, stored as `user_version`. Release 1.0.0 wrote version 1. */
export const SCHEMA_VERSION = 2;

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
