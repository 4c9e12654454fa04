import type { DatabaseSync } from "node:sqlite";
import { createTables, PRERELEASE, PRERELEASE_TABLE, toVersion2 } from "../schema.ts";
import { integer } from "../values.ts";

/** Marks a database as this service's: "CUWS" (https://www.sqlite.org/pragma.html#pragma_application_id). */
export const APPLICATION_ID = 0x43555753;

/**
 * The indexes of words and titles. `search_texts` has the words of the texts of events, without their order, and a word for
 * the conversation; its row ids are the sequences of the events. Those of `search_title_words`, and of `titles`, which is
 * the trigram index of the titles, are those of `conversations`.
 *
 * The tokenizer changes nothing of the words, which have no other ASCII characters than letters and digits. Beginnings of
 * words of two characters have lists of their own: without them, the lists of all words with such a beginning are merged for
 * each search, which takes seconds. With 'usermerge' 2, the merges of an index of words that an erasure begins go on until
 * all is in one segment.
 */
const INDEXES_OF_WORDS = Object.entries({
	search_texts: "words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2'",
	search_title_words: "words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2'",
	titles: "title, content = '', contentless_delete = 1, detail = none, tokenize = 'trigram'",
}).flatMap(([name, options]) => [
	`CREATE VIRTUAL TABLE ${name} USING fts5 (${options})`,
	`INSERT INTO ${name} (${name}, rank) VALUES ('usermerge', 2)`,
]);

/** The statements that create the tables of the present version in an empty database. */
const CREATION: readonly string[] = [
	`PRAGMA application_id = ${APPLICATION_ID}`,
	...createTables("sqlite"),
	...INDEXES_OF_WORDS,
];

/** The statements from each version of the schema to the next one. Release 1.0.0 wrote version 1. */
const MIGRATIONS: readonly (readonly string[])[] = [toVersion2("sqlite")];

/** Version of the schema, stored as `user_version`. */
export const SCHEMA_VERSION = MIGRATIONS.length + 1;

/**
 * Creates the tables in an empty database, or upgrades those of an earlier version. The caller has begun a transaction.
 *
 * @throws Error as {@link schemaVersion}
 */
export function createSchema(database: DatabaseSync): void {
	const from = schemaVersion(database);
	const statements = from === 0 ? CREATION : MIGRATIONS.slice(from - 1).flat();
	for (const statement of statements) database.exec(statement);
	if (from < SCHEMA_VERSION) database.exec(`PRAGMA user_version = ${SCHEMA_VERSION}`);
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
