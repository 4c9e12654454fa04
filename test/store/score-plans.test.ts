import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Condition } from "../../src/store/condition.ts";
import { type ConversationQuery, listConversations } from "../../src/store/conversation-lists.ts";
import { reportScores } from "../../src/store/score-report.ts";
import type { Session } from "../../src/store/session.ts";
import { sqliteSession } from "../../src/store/sqlite/session.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { deriveConversations } from "../../src/store/views/conversations.ts";
import { TempFolder } from "../support/temp.ts";
import { RecordedStatements } from "./recorded-statements.ts";
import { append, sample } from "./samples.ts";

let folder: TempFolder;
beforeAll(() => {
	folder = new TempFolder();
});
afterAll(() => folder[Symbol.dispose]());

/** Returns the plan of the last statement of some work that has a text, with an empty database. */
async function planOf(work: (session: Session) => Promise<unknown>, having = ""): Promise<string> {
	const path = folder.file(`${performance.now()}.db`);
	await (await openSqliteStore(path, { error() {} })).close();
	using database = new DatabaseSync(path, { readBigInts: true });
	const statements = new RecordedStatements(database);
	await work(sqliteSession(statements));
	const rows = database
		.prepare(`EXPLAIN QUERY PLAN ${statements.texts.findLast((text) => text.includes(having))}`)
		.all();
	return rows.map(({ detail }) => String(detail)).join("\n");
}

const listed = (query: Partial<ConversationQuery>, having = "") =>
	planOf((session) => listConversations(session, { conditions: [], limit: 50, withRecords: false, ...query }), having);

test("lists with a filter by a score read the index of its values", async () => {
	const score = { kind: "score", name: "tests_passed" } as const;
	expect(await listed({ conditions: [{ ...score, is: ">=", value: 0.8 }] })).toMatch(
		/SEARCH t USING (COVERING )?INDEX score_values_by_value \(name=\? AND value>\?\)/,
	);
	expect(await listed({ conditions: [{ ...score, is: "=", value: ["tool"] }] })).toMatch(
		/SEARCH t USING (COVERING )?INDEX score_values_by_shown \(name=\? AND shown=\?\)/,
	);
});

test("lists by a score read the index of its values, on a later page from where the one before ended", async () => {
	const order = { order: "score", orderScore: "tests_passed" } as const;
	expect(await listed(order, "score_values o")).toMatch(
		/SEARCH o USING (COVERING )?INDEX score_values_by_value \(name=\?/,
	);
	expect(await listed({ ...order, before: 7n, beforeValue: 0.5 }, "score_values o")).toMatch(
		/SEARCH o USING (COVERING )?INDEX score_values_by_value \(name=\? AND value>\? AND value<\?\)/,
	);
	// Then follow those without one, the newest first.
	expect(await listed(order)).toContain("SEARCH c USING INDEX conversations_by_sequence");
});

const REPORT = {
	name: "tests_passed",
	from: undefined,
	to: undefined,
	groups: [],
	conditions: [],
	limit: 100,
} as const;

test("reports read an index alone: over all time that of what stands for conversations, else that of the scores", async () => {
	for (const [of, index] of [
		[{}, "score_values USING COVERING INDEX score_values_by_model (name=?)"],
		[{ groups: [{ kind: "model" }] }, "score_values USING COVERING INDEX score_values_by_model (name=?)"],
		[{ from: 1n }, "scores USING COVERING INDEX scores_by_name (name=?)"],
	] as const) {
		const plan = await planOf((session) => reportScores(session, { ...REPORT, ...of }));
		expect(plan).toContain(`SEARCH ${index}`);
		if (!("from" in of)) expect(plan).not.toContain("TEMP B-TREE");
	}
});

test("reports of the scores look up what stands for conversations, unless a condition needs the conversations", async () => {
	const byDay = (conditions: readonly Condition[]) =>
		planOf((session) => reportScores(session, { ...REPORT, groups: [{ kind: "day" }], conditions }), "AS day");
	const values = "SEARCH c USING PRIMARY KEY (conversation_id=? AND name=?)";
	expect(await byDay([])).toContain(values);
	expect(await byDay([{ kind: "equal", field: "model", value: "m" }])).toContain(values);
	expect(await byDay([{ kind: "title", contains: "a" }])).toContain(
		"SEARCH c USING INDEX sqlite_autoindex_conversations",
	);
});

test("a conversation that the view knows is derived without a look at its scores", async () => {
	const path = folder.file("known.db");
	await using closing = new AsyncDisposableStack();
	const store = await openSqliteStore(path, { error() {} });
	closing.defer(() => store.close());
	const known = sample();
	await append(store, known);
	await store.listConversations({ conditions: [], limit: 1, withRecords: false });
	using database = new DatabaseSync(path, { readBigInts: true });
	const statements = new RecordedStatements(database);
	await deriveConversations(sqliteSession(statements), [known.conversationId]);
	expect(statements.texts.filter((text) => /FROM (main\.)?scores\b/.test(text))).toEqual([]);
	await deriveConversations(sqliteSession(statements), ["00000000-0000-4000-8000-000000000001"]);
	expect(statements.texts.filter((text) => /FROM (main\.)?scores\b/.test(text))).toHaveLength(1);
});
