import type { DatabaseSync } from "node:sqlite";
import { readMigrations } from "../migrations.ts";
import { integer } from "../values.ts";

const MIGRATIONS = readMigrations(new URL("./migrations/", import.meta.url));

/** Version of the schema, stored as `user_version`. */
export const SCHEMA_VERSION = MIGRATIONS.length;

/**
 * Marks a database as this service's: "CUWS" (https://www.sqlite.org/pragma.html#pragma_application_id). The migration to
 * version 4 sets it.
 */
export const APPLICATION_ID = 0x43555753;

/** Last schema version without an application id. Databases up to this version are recognized by their tables. */
const LAST_WITHOUT_ID = 3;
const TABLES_WITHOUT_ID = [
	"store_state",
	"logs",
	"updates",
	"conversations",
	"tags",
	"titles",
	"activities",
	"events",
	"pruned",
];

/**
 * Creates the tables in an empty database, or upgrades those of an earlier version. The caller has begun a transaction.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program
 */
export function createSchema(database: DatabaseSync): void {
	for (const { version, sql } of MIGRATIONS.slice(schemaVersion(database)))
		database.exec(`${sql} PRAGMA user_version = ${version};`);
}

/**
 * Returns the schema version of a database; 0 when the database is empty.
 *
 * @throws Error when a newer release wrote the database, or when it belongs to another program
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
	const isOwn =
		id === APPLICATION_ID
			? version > LAST_WITHOUT_ID
			: id === 0 && version >= 1 && version <= LAST_WITHOUT_ID && TABLES_WITHOUT_ID.every((name) => tables.has(name));
	if (!isOwn) throw new Error("the file is a database of another program");
	if (version > SCHEMA_VERSION)
		throw new Error(
			`the database has schema version ${version}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
		);
	return version;
}
