import { randomUUID } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { EventQuery } from "../../src/store/entries.ts";
import { postgresSession } from "../../src/store/postgres/session.ts";
import { listEvents } from "../../src/store/read-logs.ts";
import { sqliteSession } from "../../src/store/sqlite/session.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import { TempFolder } from "../support/temp.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { Databases, openStore } from "./postgres/databases.ts";
import { RecordedQueries, RecordedStatements } from "./recorded-statements.ts";
import { second, start } from "./samples.ts";

/** Number of events, of two conversations in turn. The last ones of them happened since `yesterday`. */
const [EVENTS, LAST] = [6_000, 100];
const A = randomUUID();
const yesterday = start + BigInt(EVENTS - LAST) * second;
const all: EventQuery = { after: 0n, limit: 50 };
const since: EventQuery = { ...all, conditions: [{ kind: "happened", from: yesterday }] };
const byId: EventQuery = { ...all, conditions: [{ kind: "id", value: "wanted" }] };

async function fill(store: Store): Promise<void> {
	const ids = [A, randomUUID()];
	for (let n = 0; n < EVENTS; n += 50) {
		const events = Array.from({ length: 50 }, (_, index) => event({ happenedAt: start + BigInt(n + index) * second }));
		await appendEvents(store, batch(ids[(n / 50) % 2] ?? "", events));
	}
	await appendEvents(store, batch(A, [event({ eventId: "wanted", happenedAt: start })]));
	expect((await store.events.list(since)).map(({ happenedAt }) => happenedAt)).toEqual(
		Array.from({ length: 50 }, (_, index) => yesterday + BigInt(index) * second),
	);
}

describe("SQLite", () => {
	const folder = new TempFolder();
	let store: Store;
	let database: DatabaseSync;
	beforeAll(async () => {
		store = await openSqliteStore(folder.file("conversations.db"), { error() {} });
		await fill(store);
		database = new DatabaseSync(folder.file("conversations.db"), { readOnly: true, readBigInts: true });
	});
	afterAll(async () => {
		database.close();
		await store.close();
		folder[Symbol.dispose]();
	});

	test.each<[string, EventQuery, string[]]>([
		["since a time", since, ["e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]],
		[
			"since a time, newest first",
			{ ...since, newestFirst: true },
			["e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
		],
		[
			"of a conversation since a time",
			{ ...since, conversationId: A },
			["e USING INDEX events_by_conversation (conversation_id=? AND rowid>? AND rowid<?)"],
		],
		[
			"of a conversation by its id",
			{ ...byId, conversationId: A },
			["e USING INDEX events_by_id (conversation_id=? AND event_id=?)"],
		],
		["by its id", byId, ["e USING INDEX events_by_id (conversation_id=? AND event_id=? AND rowid>? AND rowid<?)"]],
	])("an event %s is found by an index", async (_, query, expected) => {
		const statements = new RecordedStatements(database);
		await listEvents(sqliteSession(statements), query);
		const text = statements.texts[0] ?? "";
		const steps = database.prepare(`EXPLAIN QUERY PLAN ${text}`).all();
		let tested = 0n;
		database.function("tested", (time) => {
			tested += 1n;
			return time;
		});
		class Tested extends RecordedStatements {
			override prepare(sql: string) {
				return super.prepare(sql.replaceAll("e.happened_at >=", "tested(e.happened_at) >="));
			}
		}
		await listEvents(sqliteSession(new Tested(database)), query);
		// A block has 1,024 events.
		expect(tested).toBeLessThan(1_024 + 50);
		const accesses = steps.map(({ detail }) => String(detail)).filter((detail) => /^\w+ e /.test(detail));
		// The events of the page are read by their row ids.
		const all = [...expected, "e USING INTEGER PRIMARY KEY (rowid=?)"];
		expect(accesses).toEqual(all.map((access) => `SEARCH ${access}`));
	});
});

describe("PostgreSQL", () => {
	let databases: Databases;
	let store: Store;
	let client: pg.Client;
	beforeAll(async () => {
		databases = await Databases.start();
		const url = await databases.create();
		store = await openStore(url);
		await fill(store);
		client = new pg.Client({ connectionString: url, ssl: false });
		await client.connect();
		await client.query("ANALYZE");
	});
	afterAll(async () => {
		await client.end();
		await store.close();
		await databases[Symbol.asyncDispose]();
	});

	test.each<[string, EventQuery, string]>([
		["since a time", since, "events_by_sequence"],
		["since a time, newest first", { ...since, newestFirst: true }, "events_by_sequence"],
		["of a conversation since a time", { ...since, conversationId: A }, "(events_pkey|events_by_sequence)"],
		["of a conversation by its id", { ...byId, conversationId: A }, "events_by_id"],
		["by its id", byId, "events_by_id"],
	])("an event %s is found by an index", async (_, query, index) => {
		const recorded = new RecordedQueries();
		await listEvents(postgresSession(recorded), query);
		const { text = "", values } = recorded.queries[0] ?? {};
		const [row] = (await client.query(`EXPLAIN (ANALYZE, FORMAT JSON) ${text}`, [...(values ?? [])])).rows;
		// The scan of the page, whose events another one reads.
		const [scan, ...others] = scansIn(row?.["QUERY PLAN"]).filter(({ Alias }) => Alias === "e_1");
		const removed = Number(scan?.["Rows Removed by Filter"] ?? 0);
		// A block has 1,024 events.
		expect([scan?.["Index Name"], others, removed < 1_024]).toEqual([
			expect.stringMatching(`^${index}$`),
			...[[], true],
		]);
	});

	/** Returns the steps of a plan that read events. */
	function scansIn(plan: unknown): Readonly<Record<string, unknown>>[] {
		if (Array.isArray(plan)) return plan.flatMap(scansIn);
		if (typeof plan !== "object" || plan === null) return [];
		const step = Object.fromEntries(Object.entries(plan));
		const own = step["Relation Name"] === "events" || String(step["Index Name"]).startsWith("events_") ? [step] : [];
		return [...own, ...scansIn(step.Plan), ...scansIn(step.Plans)];
	}
});
