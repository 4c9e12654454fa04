import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Condition } from "../../src/store/condition.ts";
import { listConversations } from "../../src/store/conversation-lists.ts";
import type { Connections } from "../../src/store/postgres/connections.ts";
import { postgresSession } from "../../src/store/postgres/session.ts";
import type { Query } from "../../src/store/postgres/transaction.ts";
import type { Session } from "../../src/store/session.ts";
import { sqliteSession } from "../../src/store/sqlite/session.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { listUsedPeriods, reportUsage, type UsageQuery, type UsedPeriodsQuery } from "../../src/store/usage-report.ts";
import { TempFolder } from "../support/temp.ts";
import { connect, Databases, openStore } from "./postgres/databases.ts";
import { RecordedQueries, RecordedStatements } from "./recorded-statements.ts";

const DAY = 96n;
const MONTH = { first: 20_000n * DAY, beyond: 20_030n * DAY };
const DAYS = Array.from({ length: 30 }, (_, n) => ({
	first: MONTH.first + BigInt(n) * DAY,
	beyond: MONTH.first + BigInt(n + 1) * DAY,
}));
const ODD = { first: MONTH.first + 3n, beyond: MONTH.first + 99n };
const SENDER: Condition = { kind: "equal", field: "sender", value: "server" };
const SOME: Condition = { kind: "ids", ids: ["00000000-0000-4000-8000-000000000001"] };
const BY_MODEL = { groups: [{ kind: "model" }], conditions: [], top: 0, limit: 10 } as const;
const BY_TAG = { ...BY_MODEL, groups: [{ kind: "tag", key: "team" }, { kind: "root" }] } as const;

/** How the tables of usage are read, in SQLite and in PostgreSQL. */
const SUMS = ["PRIMARY KEY (length=? AND start>? AND start<?)", "usage_sums_pkey"] as const;
const USED_DAYS = ["PRIMARY KEY (day>? AND day<?)", "usage_days_pkey"] as const;
const LEDGER = ["usage_ledger_by_quarter (quarter>? AND quarter<?)", "usage_ledger_by_quarter"] as const;

const NAMED = ["PRIMARY KEY (conversation_id=? AND quarter>? AND quarter<?)", "usage_ledger_pkey"] as const;

/** Reports, and the access of each of their statements: rows, numbers of conversations, and their total. */
const REPORTS: readonly [string, UsageQuery, readonly (readonly (readonly [string, string])[])[]][] = [
	["30 days", { ...BY_MODEL, periods: [MONTH] }, [[SUMS], [USED_DAYS], [USED_DAYS]]],
	["each of 30 days", { ...BY_MODEL, periods: DAYS }, [[SUMS], [USED_DAYS], [USED_DAYS]]],
	["30 days of a sender", { ...BY_MODEL, periods: [MONTH], conditions: [SENDER] }, [[SUMS], [USED_DAYS], [USED_DAYS]]],
	["each of 30 days of an owner", { ...BY_MODEL, periods: DAYS, owner: "red" }, [[SUMS], [USED_DAYS], [USED_DAYS]]],
	["the largest of each day", { ...BY_MODEL, periods: DAYS, top: 3 }, [[SUMS], [SUMS, USED_DAYS], [USED_DAYS]]],
	["no whole days", { ...BY_MODEL, periods: [ODD] }, [[SUMS], [LEDGER], [LEDGER]]],
	["30 days of some conversations", { ...BY_MODEL, periods: [MONTH], conditions: [SOME] }, [[NAMED], [NAMED]]],
	["30 days by tag and root", { ...BY_TAG, periods: [MONTH] }, [[LEDGER], [USED_DAYS]]],
];
const USED: UsedPeriodsQuery = { ...MONTH, length: 96n, limit: 10 };

let databases: Databases;
let folder: TempFolder;
let database: DatabaseSync;
let connection: Connections;
beforeAll(async () => {
	folder = new TempFolder();
	databases = await Databases.start();
	const path = folder.file("conversations.db");
	await (await openSqliteStore(path, { error() {} })).close();
	database = new DatabaseSync(path, { readBigInts: true });
	const url = await databases.create();
	await (await openStore(url)).close();
	connection = await connect(url);
});
afterAll(async () => {
	await connection[Symbol.asyncDispose]();
	database.close();
	await databases[Symbol.asyncDispose]();
	folder[Symbol.dispose]();
});

/** Returns how a statement of SQLite reads a table with an alias: by which index, and by which of its columns. */
function sqlitePlan(text: string, alias: string): string[] {
	const steps = database.prepare(`EXPLAIN QUERY PLAN ${text}`).all();
	return steps.flatMap(({ detail }) => {
		const [, how, by] =
			new RegExp(`^(SEARCH|SCAN) ${alias}\\b(?: USING (?:COVERING )?(?:INDEX )?(.*))?$`).exec(String(detail)) ?? [];
		return how === undefined ? [] : [by ?? how];
	});
}

/** Returns the indexes by which PostgreSQL reads tables, and the tables that it reads without one. */
async function postgresPlan({ text, values = [] }: Query, tables: string): Promise<string[]> {
	const rows = await connection.read(async (session) => {
		// The tables are empty. Only the plans remain that large ones have.
		const settings = ["seqscan", "bitmapscan"].map((name) => ({ text: `SET LOCAL enable_${name} = off` }));
		return (await session.query(...settings, { text: `EXPLAIN ${text}`, values })).at(-1) ?? [];
	});
	const steps = rows.map((row) => String(row["QUERY PLAN"])).join("\n");
	return [...steps.matchAll(new RegExp(`(?:using (\\w+)|Seq Scan) on (${tables}) `, "g"))].map(
		([, index, table]) => index ?? `all of ${table}`,
	);
}

const USAGE = "usage_sums|usage_days|usage_ledger";

describe("a report of usage reads along indexes", () => {
	test.each(REPORTS)("of %s", async (_, query, expected) => {
		const statements = new RecordedStatements(database);
		await reportUsage(sqliteSession(statements), query);
		expect(statements.texts.map((text) => sqlitePlan(text, "u"))).toEqual(
			expected.map((accesses) => accesses.map(([inSqlite]) => inSqlite)),
		);
		const { queries } = await recordedOf((session) => reportUsage(session, query));
		const plans: string[][] = [];
		for (const asked of queries) plans.push((await postgresPlan(asked, USAGE)).sort());
		expect(plans).toEqual(expected.map((accesses) => accesses.map(([, inPostgres]) => inPostgres).sort()));
	});

	test.each([undefined, "red"])("of the periods with usage (owner %s)", async (owner) => {
		const statements = new RecordedStatements(database);
		await listUsedPeriods(sqliteSession(statements), { ...USED, owner });
		const access = "PRIMARY KEY (length=? AND start>?)";
		expect(statements.texts.map((text) => sqlitePlan(text, "u"))).toEqual([[access, access]]);
		const [query] = (await recordedOf((session) => listUsedPeriods(session, { ...USED, owner }))).queries;
		// PostgreSQL shows the plan of the recursive part only when it runs.
		expect(query && (await postgresPlan(query, USAGE))).toEqual(["usage_sums_pkey"]);
	});
});

/** Returns the queries of some work, which PostgreSQL answers with no rows. */
async function recordedOf(work: (session: Session) => Promise<unknown>): Promise<RecordedQueries> {
	const recorded = new RecordedQueries();
	// A report has rows always.
	await work(postgresSession(recorded)).catch(() => undefined);
	return recorded;
}

const time = { from: 1n, to: 2n };
const equal = (field: Extract<Condition, { kind: "equal" }>["field"], value: string | number = "a") =>
	({ kind: "equal", field, value }) as const;
/** Filters, and the index by which each alone finds conversations in SQLite and in PostgreSQL. */
const FILTERS: readonly [Condition, string, string][] = [
	[equal("executionStatus", 2), "conversations_by_status (status=?)", "conversations_by_status"],
	[equal("agentKind"), "conversations_by_agent_kind (agent_kind=?)", "conversations_by_agent_kind"],
	[equal("model"), "conversations_by_model (model=?)", "conversations_by_model"],
	[equal("sender"), "conversations_by_sender (sender=?)", "conversations_by_sender"],
	[equal("owner"), "conversations_by_owner (owner=? AND sequence<?)", "conversations_by_owner"],
	[equal("parentConversationId"), "conversations_by_parent (parent_id=?)", "conversations_by_parent"],
	[equal("forkedFromConversationId"), "conversations_by_source (source_id=?)", "conversations_by_source"],
	[
		{ kind: "one_of", field: "executionStatus", values: [1, 2] },
		...(["conversations_by_status (status=?)", "conversations_by_status"] as const),
	],
	[
		{ kind: "ids", ids: ["00000000-0000-4000-8000-000000000001"] },
		...(["sqlite_autoindex_conversations_1 (conversation_id=?)", "conversations_pkey"] as const),
	],
	[{ kind: "tag", key: "team", value: undefined }, "tags_by_value (key=?)", "tags_by_value"],
	[{ kind: "tag", key: "team", value: "a" }, "tags_by_value (key=? AND value=?)", "tags_by_value"],
	[
		{ kind: "time", field: "createdAt", ...time },
		...(["conversations_by_created (created_at>? AND created_at<?)", "conversations_by_created"] as const),
	],
	[
		{ kind: "time", field: "updatedAt", ...time },
		...(["conversations_by_updated (updated_at>? AND updated_at<?)", "conversations_by_updated"] as const),
	],
	[
		{ kind: "time", field: "activityAt", ...time },
		...(["conversations_by_activity (activity_at>? AND activity_at<?)", "conversations_by_activity"] as const),
	],
	[
		{ kind: "not_reported", of: "tokens" },
		...(["conversations_by_tokens (tokens=? AND sequence<?)", "conversations_by_tokens"] as const),
	],
	[{ kind: "cost", from: 1, to: 2 }, "conversations_by_cost (cost>? AND cost<?)", "conversations_by_cost"],
	[{ kind: "error", value: true }, "conversations_with_error (sequence<?)", "conversations_with_error"],
	[{ kind: "gaps", value: true }, "conversations_with_gaps (sequence<?)", "conversations_with_gaps"],
];

test.each(FILTERS)("a list with the filter %o is read along its index", async (condition, inSqlite, inPostgres) => {
	const query = { conditions: [condition], limit: 50, withRecords: false };
	const statements = new RecordedStatements(database);
	await listConversations(sqliteSession(statements), query);
	const list = statements.texts.find((text) => text.includes("ORDER BY")) ?? "";
	expect(sqlitePlan(list, "[ct]")[0]).toBe(inSqlite);
	// An index that ends in the sequence has the order of the list, too.
	const steps = database.prepare(`EXPLAIN QUERY PLAN ${list}`).all();
	const sorts = steps.some(({ detail }) => detail === "USE TEMP B-TREE FOR ORDER BY");
	if (inSqlite.endsWith("sequence<?)")) expect(sorts).toBe(false);
	const [asked] = (await recordedOf((session) => listConversations(session, query))).queries;
	expect(asked && (await postgresPlan(asked, "conversations|tags"))[0]).toBe(inPostgres);
});
