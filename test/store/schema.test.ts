import { chmodSync, copyFileSync, readFileSync, statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { PRERELEASE } from "../../src/store/schema.ts";
import { APPLICATION_ID, createSchema, SCHEMA_VERSION } from "../../src/store/sqlite/schema.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";

test("an empty database gets the tables once, although the schema is created twice", () => {
	const database = new DatabaseSync(":memory:");
	createSchema(database);
	createSchema(database);
	expect(identityOf(database)).toEqual([APPLICATION_ID, SCHEMA_VERSION]);
	const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").all();
	expect(tables.map(({ name }) => name)).toEqual(
		expect.arrayContaining(["activities", "conversations", "events", "pruned", "state", "tags", "updates"]),
	);
	database.close();
});

/** Returns the application id and the schema version of a database. */
function identityOf(database: DatabaseSync): unknown[] {
	return ["application_id", "user_version"].map((name) => database.prepare(`PRAGMA ${name}`).get()?.[name]);
}

const FOREIGN = "the file is a database of another program";

test.each([
	[
		"a newer release",
		`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${SCHEMA_VERSION + 1}`,
		`the database has schema version ${SCHEMA_VERSION + 1}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
	],
	[
		"a version before 1.0.0",
		`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = 25; CREATE TABLE derivations (name)`,
		PRERELEASE,
	],
	["another program", "CREATE TABLE theirs (a)", FOREIGN],
	["another program with a write-ahead log", "PRAGMA journal_mode = WAL; CREATE TABLE theirs (a)", FOREIGN],
	["another program without tables", "PRAGMA user_version = 1", FOREIGN],
	["another program with our current version", `PRAGMA user_version = ${SCHEMA_VERSION}`, FOREIGN],
	["another program with an application id", "PRAGMA application_id = 252006675", FOREIGN],
	[
		"another program with an application id and our current version",
		`PRAGMA application_id = 252006675; PRAGMA user_version = ${SCHEMA_VERSION}`,
		FOREIGN,
	],
	["another program with a version above ours", "PRAGMA user_version = 1000", FOREIGN],
])("a database of %s is refused and left unchanged", async (_, sql, message) => {
	using folder = new TempFolder();
	const path = folder.file("conversations.db");
	{
		using database = new DatabaseSync(path);
		database.exec(sql);
	}
	chmodSync(path, 0o644);
	const before = readFileSync(path);
	const refused = openSqliteStore(path, { error() {} });
	await expect(refused).rejects.toMatchObject({ kind: "unavailable", cause: new Error(message) });
	expect([statSync(path).mode & 0o777, readFileSync(path)]).toEqual([0o644, before]);
	expect([...folder.contents().keys()].sort()).toEqual(["conversations.db", "conversations.db.lock"]);
});

test.each([
	["a write-ahead log", "-wal", "PRAGMA journal_mode = WAL; CREATE TABLE theirs (a); PRAGMA user_version = 2"],
	// A small cache makes SQLite write pages, and with them the journal, before the commit.
	[
		"a journal",
		"-journal",
		`CREATE TABLE theirs (a);
		INSERT INTO theirs WITH RECURSIVE n (a) AS (VALUES (1) UNION ALL SELECT a + 1 FROM n LIMIT 1000) SELECT hex(zeroblob(500)) FROM n;
		PRAGMA cache_size = 1; BEGIN; UPDATE theirs SET a = 1;`,
	],
])(
	"a database that another program left with %s is refused, and both of its files are left unchanged",
	async (_, suffix, sql) => {
		using folder = new TempFolder();
		const path = folder.file("conversations.db");
		{
			using database = new DatabaseSync(folder.file("open.db"));
			database.exec(sql);
			for (const end of ["", suffix]) copyFileSync(folder.file(`open.db${end}`), path + end);
		}
		const before = [path, path + suffix].map((file) => readFileSync(file));
		expect(before[1]?.length).toBeGreaterThan(512);
		const refused = openSqliteStore(path, { error() {} });
		await expect(refused).rejects.toMatchObject({ kind: "unavailable", cause: new Error(FOREIGN) });
		expect([path, path + suffix].map((file) => readFileSync(file))).toEqual(before);
		using theirs = new DatabaseSync(path);
		expect(theirs.prepare("SELECT count(*) AS tables FROM sqlite_schema").get()).toEqual({ tables: 1 });
	},
);
