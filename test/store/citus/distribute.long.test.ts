import { expect, test } from "vitest";
import { type ConversationQuery, listConversations } from "../../../src/store/conversation-lists.ts";
import type { Connections } from "../../../src/store/postgres/connections.ts";
import { SCHEMA_VERSION } from "../../../src/store/postgres/schema.ts";
import { postgresSession } from "../../../src/store/postgres/session.ts";
import type { Query } from "../../../src/store/postgres/transaction.ts";
import type { Session } from "../../../src/store/session.ts";
import { ServiceProcess } from "../../support/child.ts";
import { connect, openStore } from "../postgres/databases.ts";
import { append, sample } from "../samples.ts";
import { describeOnCitus } from "./on-citus.ts";

await describeOnCitus("migrate --distribute", (cluster) => {
	test("spreads the tables and the rows that they have, once", async () => {
		const { coordinator } = cluster();
		const url = coordinator.url("?sslmode=disable");
		const run = (...args: string[]) => ServiceProcess.run({ DATABASE_URL: url }, "migrate", ...args);
		const version = SCHEMA_VERSION;
		expect(await run()).toEqual({ code: 0, stdout: `Created the schema with version ${version}.\n`, stderr: "" });
		const updates = Array.from({ length: 20 }, () => sample());
		const store = await openStore(url);
		for (const update of updates) await append(store, update);
		await store.close();

		const spread = `The schema already has version ${version}.\nThe tables are distributed.\n`;
		for (let n = 0; n < 2; n++) expect(await run("--distribute")).toEqual({ code: 0, stdout: spread, stderr: "" });
		const tables = await coordinator.sql(
			`SELECT table_name::text AS name, citus_table_type AS type, distribution_column AS by FROM citus_tables
			WHERE citus_table_type <> 'local' ORDER BY 1`,
		);
		const byConversation = (name: string) => ({ name, type: "distributed", by: "conversation_id" });
		expect(
			tables.map(({ name, ...row }) => ({ name: String(name).replace("conversation_updates.", ""), ...row })),
		).toEqual([
			byConversation("activities"),
			byConversation("children"),
			byConversation("conversations"),
			{ name: "erasures", type: "reference", by: "<none>" },
			byConversation("events"),
			byConversation("heads"),
			byConversation("pruned"),
			byConversation("score_values"),
			byConversation("scores"),
			byConversation("search_texts"),
			byConversation("tags"),
			byConversation("untimed_calls"),
			byConversation("updates"),
			byConversation("usage_conversations"),
			byConversation("usage_days"),
			byConversation("usage_ledger"),
		]);
		const nodes = await coordinator.sql(
			"SELECT DISTINCT nodeport FROM citus_shards WHERE table_name = 'conversation_updates.updates'::regclass ORDER BY 1",
		);
		expect(nodes.map(({ nodeport }) => nodeport)).toEqual(
			cluster()
				.workers.map(({ port }) => port)
				.sort((a, b) => a - b),
		);

		const again = await openStore(url);
		for (const { conversationId } of updates)
			expect((await again.get(conversationId))?.conversationId).toBe(conversationId);
		await again.close();
	});

	test("refuses to open a database with more than one connection to a worker", async () => {
		const { coordinator } = cluster();
		const url = coordinator.url("?sslmode=disable");
		await (await openStore(url, { distribute: true })).close();
		const setting = "citus.max_adaptive_executor_pool_size";
		await coordinator.sql(`ALTER DATABASE postgres SET ${setting} = 16`);
		await expect(openStore(url)).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store's database cannot be opened",
			cause: {
				message:
					`${setting} is 16, and must be 1: with more, reads can miss entries while a server of Citus fails; ` +
					"set it with ALTER SYSTEM or ALTER ROLE",
			},
		});
		await coordinator.sql(`ALTER DATABASE postgres RESET ${setting}`);
		await (await openStore(url)).close();
	});

	test("cannot group usage by root, and says what to do instead", async () => {
		await using store = await openStore(cluster().coordinator.url("?sslmode=disable"), { distribute: true });
		await expect(
			store.reportUsage({
				periods: [{ first: 0n, beyond: 2n ** 40n }],
				groups: [{ kind: "root" }],
				conditions: [],
				top: 0,
				limit: 100,
			}),
		).rejects.toMatchObject({
			kind: "failed_precondition",
			message:
				"usage cannot be grouped by root, because the tables are on several servers: group by conversation, and add up " +
				"the conversations below a root by their parent_conversation_id",
		});
	});

	const tag = { kind: "tag", key: "team", value: "a" } as const;
	const all: ConversationQuery = { conditions: [], limit: 5, withRecords: false };
	test.each<[string, ConversationQuery]>([
		["of all conversations", all],
		["by activity", { ...all, order: "activity" }],
		["with records", { ...all, withRecords: true }],
		[
			"with a tag and a status",
			{ ...all, conditions: [tag, { kind: "one_of", field: "executionStatus", values: [1, 2] }] },
		],
		["with a part of the title", { ...all, conditions: [{ kind: "title", contains: "form" }] }],
	])("a list %s copies no table to another server", async (_, query) => {
		const url = cluster().coordinator.url("?sslmode=disable");
		await using store = await openStore(url, { distribute: true });
		const columns = { title: "Fix the form", tags: { team: "a" } };
		for (let n = 0; n < 10; n++) await append(store, sample({ columns }));
		const expected = await store.listConversations(query);
		expect(expected).toHaveLength(query.limit);
		await using connections = await connect(url);
		const { found, subplans } = await explained(connections, (session) => listConversations(session, query));
		expect(found).toEqual(expected);
		expect(subplans).toEqual([]);
	});

	/** Runs a read. Returns what it found, and the plans of Citus that copy rows from one server to another. */
	async function explained<T>(connections: Connections, read: (session: Session) => Promise<T>) {
		return await connections.read(async (session) => {
			const queries: Query[] = [];
			const recording = {
				spread: session.spread,
				hasSnapshot: session.hasSnapshot,
				query: (...asked: readonly Query[]) => {
					queries.push(...asked);
					return session.query(...asked);
				},
			};
			const found = await read(postgresSession(recording));
			const plans = await session.query(
				...queries.map(({ text, values = [] }) => ({ text: `EXPLAIN ${text}`, values })),
			);
			const steps = plans.flat().map((row) => String(row["QUERY PLAN"]));
			return { found, subplans: steps.filter((step) => step.includes("Distributed Subplan")) };
		});
	}
});
