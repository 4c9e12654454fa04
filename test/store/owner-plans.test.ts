import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Condition } from "../../src/store/condition.ts";
import { type ConversationQuery, listConversations } from "../../src/store/conversation-lists.ts";
import { postgresSession } from "../../src/store/postgres/session.ts";
import { sqliteSession } from "../../src/store/sqlite/session.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";
import { connect, Databases, openStore } from "./postgres/databases.ts";
import { RecordedQueries, RecordedStatements } from "./recorded-statements.ts";

const OWNER: Condition = { kind: "equal", field: "owner", value: "team-a" };
const QUERY: ConversationQuery = { conditions: [OWNER], limit: 50, withRecords: false };

let databases: Databases;
let folder: TempFolder;
beforeAll(async () => {
	folder = new TempFolder();
	databases = await Databases.start();
});
afterAll(async () => {
	await databases[Symbol.asyncDispose]();
	folder[Symbol.dispose]();
});

test("SQLite reads the list of an owner along an index, and sorts nothing", async () => {
	const path = folder.file("conversations.db");
	await (await openSqliteStore(path, { error() {} })).close();
	using database = new DatabaseSync(path, { readBigInts: true });
	const statements = new RecordedStatements(database);
	await listConversations(sqliteSession(statements), QUERY);
	expect(statements.texts).toHaveLength(1);
	const rows = database.prepare(`EXPLAIN QUERY PLAN ${statements.texts[0]}`).all();
	expect(rows.map(({ detail }) => String(detail))).toEqual([
		"CO-ROUTINE c",
		"SEARCH c USING INDEX conversations_by_owner (owner=? AND sequence<?)",
		"SCAN c",
		"SEARCH u USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
		"SEARCH a USING PRIMARY KEY (conversation_id=?) LEFT-JOIN",
	]);
});

test("PostgreSQL has an index for the list of an owner", async () => {
	const url = await databases.create();
	await (await openStore(url)).close();
	await using connection = await connect(url);
	const recorded = new RecordedQueries();
	await listConversations(postgresSession(recorded), QUERY);
	const [query] = recorded.queries;
	const rows = await connection.read(async (session) => {
		// The tables are empty. Only the plans remain that large ones have.
		const settings = ["seqscan", "bitmapscan", "sort"].map((name) => ({ text: `SET LOCAL enable_${name} = off` }));
		const results = await session.query(...settings, { text: `EXPLAIN ${query?.text}`, values: query?.values ?? [] });
		return results.at(-1) ?? [];
	});
	const plan = rows.map((row) => String(row["QUERY PLAN"])).join("\n");
	expect(plan).toContain("using conversations_by_owner on");
});
