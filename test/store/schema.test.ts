import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { createSchema, SCHEMA_VERSION } from "../../src/store/sqlite/schema.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";
import { append, sample } from "./samples.ts";

test("an empty file is given the tables, once", () => {
	const database = new DatabaseSync(":memory:");
	createSchema(database);
	createSchema(database);
	expect({ ...database.prepare("PRAGMA user_version").get() }).toEqual({ user_version: SCHEMA_VERSION });
	const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").all();
	expect(tables.map(({ name }) => name)).toEqual(
		expect.arrayContaining([
			"activities",
			"conversations",
			"events",
			"logs",
			"pruned",
			"store_state",
			"tags",
			"titles",
			"updates",
		]),
	);
	database.close();
});

test("a database of version 1 is upgraded and keeps what it has", async () => {
	using folder = new TempFolder();
	const path = folder.file("conversations.db");
	const update = sample();
	let wanted: unknown;
	{
		await using store = await openSqliteStore(path, { error() {} });
		await append(store, update);
	}
	{
		using database = new DatabaseSync(path);
		wanted = shapeOf(database);
		database.exec(`
			DROP INDEX conversations_unapplied;
			ALTER TABLE conversations RENAME COLUMN has_unapplied_events TO is_behind;
			CREATE INDEX conversations_behind ON conversations (id) WHERE is_behind = 1;
			ALTER TABLE store_state DROP COLUMN clock;
			ALTER TABLE logs DROP COLUMN skipped_through;
			PRAGMA user_version = 1;
		`);
	}
	await using store = await openSqliteStore(path, { error() {} });
	expect(await append(store, update)).toMatchObject({ sequence: 1n, repeated: true });
	expect(await append(store, sample())).toMatchObject({ sequence: 2n });
	await store.keepClock(5n);
	expect(await store.clock()).toBe(5n);
	using database = new DatabaseSync(path);
	expect(shapeOf(database)).toEqual(wanted);
});

/** The columns of the tables, and the indexes. */
function shapeOf(database: DatabaseSync) {
	const columns = database.prepare(`
		SELECT t.name AS "table", c.name AS "column", c.type, c."notnull" FROM sqlite_schema t, pragma_table_info(t.name) c
		WHERE t.type = 'table' ORDER BY 1, 2
	`);
	const indexes = database.prepare("SELECT sql FROM sqlite_schema WHERE type = 'index' ORDER BY name");
	return { columns: columns.all(), indexes: indexes.all() };
}

test.each([
	[
		"a newer release",
		`PRAGMA user_version = ${SCHEMA_VERSION + 1}`,
		`the database has schema version ${SCHEMA_VERSION + 1}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
	],
	["another program", "CREATE TABLE theirs (a)", "the file is a database of another program"],
])("a database of %s is refused and left as it is", async (_, sql, message) => {
	using folder = new TempFolder();
	const path = folder.file("conversations.db");
	const contents = () => {
		const database = new DatabaseSync(path);
		const tables = database.prepare("SELECT sql FROM sqlite_schema").all();
		const version = database.prepare("PRAGMA user_version").get();
		database.close();
		return { tables, version };
	};
	const database = new DatabaseSync(path);
	database.exec(sql);
	database.close();
	const before = contents();
	const refused = openSqliteStore(path, { error() {} });
	await expect(refused).rejects.toMatchObject({ kind: "unavailable", cause: new Error(message) });
	expect(contents()).toEqual(before);
});
