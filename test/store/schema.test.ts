import { chmodSync, copyFileSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { zstdDecompressSync } from "node:zlib";
import { fromBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { readMigrations } from "../../src/store/migrations.ts";
import { APPLICATION_ID, createSchema, SCHEMA_VERSION } from "../../src/store/sqlite/schema.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { StoredUpdate } from "../../src/store/updates.ts";
import { TempFolder } from "../support/temp.ts";
import { append, sample } from "./samples.ts";

const MIGRATIONS = new URL("../../src/store/sqlite/migrations/", import.meta.url);

test("an empty database gets the tables once, although the schema is created twice", () => {
	const database = new DatabaseSync(":memory:");
	createSchema(database);
	createSchema(database);
	expect(identityOf(database)).toEqual([APPLICATION_ID, SCHEMA_VERSION]);
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

test.each(Array.from({ length: SCHEMA_VERSION - 1 }, (_, n) => n + 1))(
	"a database of schema version %i is upgraded to the same tables as a new one",
	async (version) => {
		using folder = new TempFolder();
		const path = folder.file("conversations.db");
		{
			using database = new DatabaseSync(path);
			for (const { sql } of readMigrations(MIGRATIONS).slice(0, version)) database.exec(sql);
			database.exec(`PRAGMA user_version = ${version}`);
		}
		{
			await using store = await openSqliteStore(path, { error() {} });
			expect(await append(store, sample())).toMatchObject({ sequence: 1n });
		}
		using database = new DatabaseSync(path);
		using fresh = new DatabaseSync(":memory:");
		createSchema(fresh);
		expect(shapeOf(database)).toEqual(shapeOf(fresh));
		expect(identityOf(database)).toEqual([APPLICATION_ID, SCHEMA_VERSION]);
	},
);

test("times of receipt stand in for the missing times of the records of an older release", async () => {
	using folder = new TempFolder();
	const path = folder.file("conversations.db");
	writeFileSync(path, zstdDecompressSync(readFileSync(new URL("./schema-4.db.zst", import.meta.url))));
	{
		using older = new DatabaseSync(path);
		older.exec(`
			UPDATE conversations SET created_at = NULL, updated_at = NULL;
			UPDATE updates SET received_at = 1000 + sequence;
		`);
	}
	await using store = await openSqliteStore(path, { error() {} });
	const listed = async (field: "createdAt" | "updatedAt", from: bigint) => {
		const conditions = [{ kind: "time", field, from, to: from + 1n }] as const;
		const page = await store.listConversations({ conditions, limit: 10, withRecords: false });
		return page.map(({ sequence }) => sequence);
	};
	// The first conversation has the updates 1 and 2, the second one has update 3.
	expect([await listed("createdAt", 1001n), await listed("updatedAt", 1002n)]).toEqual([[2n], [2n]]);
	expect([await listed("createdAt", 1003n), await listed("updatedAt", 1003n)]).toEqual([[3n], [3n]]);
});

test("a database that the release with schema version 4 wrote is upgraded and keeps its data", async () => {
	using folder = new TempFolder();
	const path = folder.file("conversations.db");
	writeFileSync(path, zstdDecompressSync(readFileSync(new URL("./schema-4.db.zst", import.meta.url))));
	await using store = await openSqliteStore(path, { error() {} });
	const first = "00000000-0000-4000-8000-000000000001";
	const updates = await store.updates.list({ after: 0n, limit: 10, withRecords: true });
	expect(updates.map(({ conversationId, sequence, record }) => [conversationId, sequence, titleOf(record)])).toEqual([
		[first, 1n, "Fix the parser"],
		[first, 2n, "Fixed by an event"],
		["00000000-0000-4000-8000-000000000002", 3n, "Other"],
	]);
	const events = await store.events.list({ after: 0n, limit: 10 });
	expect(events.map(({ sequence, kind }) => [sequence, kind])).toEqual([
		[1n, "MessageEvent"],
		[2n, "ConversationStateUpdateEvent"],
	]);
	const byTitle = await store.listConversations({
		conditions: [{ kind: "title", contains: "the PARSER" }],
		limit: 10,
		withRecords: false,
	});
	expect(byTitle.map(({ conversationId }) => conversationId)).toEqual([first]);
	expect(await store.getRetentionTime()).toBe(5n);
	expect(await append(store, sample({ conversationId: first }))).toMatchObject({ sequence: 4n, duplicate: false });
});

/** Returns the title in a stored record. */
function titleOf(record: StoredUpdate["record"]): string | undefined {
	if (record === undefined || "unreadable" in record) throw new Error("the record cannot be read");
	return fromBinary(ConversationInfoSchema, record.bytes).title;
}

/** Returns the application id and the schema version of a database. */
function identityOf(database: DatabaseSync): unknown[] {
	return ["application_id", "user_version"].map((name) => database.prepare(`PRAGMA ${name}`).get()?.[name]);
}

/** Returns the columns of all tables, and all indexes. */
function shapeOf(database: DatabaseSync) {
	const columns = database.prepare(`
		SELECT t.name AS "table", c.name AS "column", c.type, c."notnull" FROM sqlite_schema t, pragma_table_info(t.name) c
		WHERE t.type = 'table' ORDER BY 1, 2
	`);
	const indexes = database.prepare("SELECT sql FROM sqlite_schema WHERE type = 'index' ORDER BY name");
	return { columns: columns.all(), indexes: indexes.all() };
}

const FOREIGN = "the file is a database of another program";

test.each([
	[
		"a newer release",
		`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${SCHEMA_VERSION + 1}`,
		`the database has schema version ${SCHEMA_VERSION + 1}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
	],
	["another program", "CREATE TABLE theirs (a)", FOREIGN],
	["another program with a write-ahead log", "PRAGMA journal_mode = WAL; CREATE TABLE theirs (a)", FOREIGN],
	["another program with an old version of ours", "CREATE TABLE updates (a); PRAGMA user_version = 3", FOREIGN],
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
