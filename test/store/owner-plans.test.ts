import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Condition, ListOrder } from "../../src/store/condition.ts";
import { listConversations } from "../../src/store/conversation-lists.ts";
import { postgresSession } from "../../src/store/postgres/session.ts";
import { sqliteSession } from "../../src/store/sqlite/session.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";
import { connect, Databases, openStore } from "./postgres/databases.ts";
import { RecordedQueries, RecordedStatements } from "./recorded-statements.ts";

const OWNER: Condition = { kind: "equal", field: "owner", value: "team-a" };
const RUNNING: Condition = { kind: "equal", field: "executionStatus", value: 2 };
const ORDERS: readonly ListOrder[] = ["updated", "activity", "created", "cost", "tokens"];
const queryOf = (order: ListOrder, ...others: Condition[]) => ({
	...{ conditions: [OWNER, ...others], order, limit: 50, withRecords: false },
});

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

test("SQLite reads the lists of an owner in each order along an index, and sorts nothing", async () => {
	const path = folder.file("conversations.db");
	await (await openSqliteStore(path, { error() {} })).close();
	using database = new DatabaseSync(path, { readBigInts: true });
	const plansOf = async (order: ListOrder, ...others: Condition[]) => {
		const statements = new RecordedStatements(database);
		await listConversations(sqliteSession(statements), queryOf(order, ...others));
		const list = statements.texts.filter((text) => text.includes("ORDER BY"));
		expect(list).toHaveLength(1);
		const rows = database.prepare(`EXPLAIN QUERY PLAN ${list[0]}`).all();
		return rows.map(({ detail }) => String(detail));
	};
	for (const order of ORDERS) {
		const index = order === "updated" ? "conversations_by_owner" : `conversations_of_owner_by_${order}`;
		const plan = [
			"CO-ROUTINE c",
			expect.stringMatching(new RegExp(`^SEARCH c USING INDEX ${index} \\(owner=\\?`)),
			"SCAN c",
			"SEARCH u USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
			"SEARCH a USING INDEX activities_by_conversation (conversation_id=?) LEFT-JOIN",
		];
		expect([order, await plansOf(order)]).toEqual([order, plan]);
		expect([order, await plansOf(order, RUNNING)]).toEqual([order, plan]);
	}
});

test("PostgreSQL has an index for the lists of an owner in each order", async () => {
	const url = await databases.create();
	await (await openStore(url)).close();
	await using connection = await connect(url);
	for (const order of ORDERS) {
		const recorded = new RecordedQueries();
		await listConversations(postgresSession(recorded), queryOf(order));
		const [query] = recorded.queries;
		const rows = await connection.read(async (session) => {
			// The tables are empty. Only the plans remain that large ones have.
			const settings = ["seqscan", "bitmapscan", "sort"].map((name) => ({ text: `SET LOCAL enable_${name} = off` }));
			const results = await session.query(...settings, { text: `EXPLAIN ${query?.text}`, values: query?.values ?? [] });
			return results.at(-1) ?? [];
		});
		const plan = rows.map((row) => String(row["QUERY PLAN"])).join("\n");
		const index = order === "updated" ? "conversations_by_owner" : `conversations_of_owner_by_${order}`;
		expect(plan).toContain(`using ${index} on`);
	}
});
