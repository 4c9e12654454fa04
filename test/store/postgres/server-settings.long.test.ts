import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { CommitUnknown } from "../../../src/store/postgres/failures.ts";
import { append, sample } from "../samples.ts";
import { connected, failureOf } from "./connecting.ts";
import { Databases, openStore, sqlOn, urlOf } from "./databases.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

/** Creates a role with settings, and a database that it owns. Returns the URL with which the role connects. */
async function ownedBy(role: string, ...settings: readonly string[]): Promise<string> {
	const { server } = databases;
	await server.sql(`CREATE ROLE ${role} LOGIN PASSWORD 'only-for-this-test'`);
	await server.sql(`CREATE DATABASE of_${role} OWNER ${role}`);
	for (const setting of settings) await server.sql(`ALTER ROLE ${role} ${setting}`);
	const url = new URL(urlOf(server.url(), `of_${role}`));
	url.username = role;
	url.password = "only-for-this-test";
	return url.href;
}

test("a commit that is on one machine only is reported even if the role has warnings turned off", async () => {
	const { server } = databases;
	const url = await ownedBy("deaf", "SET client_min_messages = error");
	const { connections } = await connected(url);
	await connections.transaction((transaction) => transaction.commit({ text: "CREATE TABLE entries (id int8)" }));
	onTestFinished(() => server.setSynchronousStandbys(""));
	await server.setSynchronousStandbys("away");
	const outcome = connections
		.transaction((transaction) => transaction.commit({ text: "INSERT INTO entries VALUES (1)" }))
		.catch((error: unknown) => error);
	const waiting = () => server.sql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
	await expect.poll(waiting, { timeout: 30_000 }).toHaveLength(1);
	for (const { pid } of await waiting()) await server.sql("SELECT pg_cancel_backend($1)", [pid]);
	expect(await outcome).toBeInstanceOf(CommitUnknown);
});

test("timeouts of the role do not apply to unlimited transactions", async () => {
	const limits = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];
	const url = await ownedBy("limited", ...limits.map((name) => `SET ${name} = '200ms'`));
	const { connections } = await connected(url);
	const slow = { text: "SELECT pg_sleep(0.5), 'done' AS text" };
	const rows = await connections.transaction(
		async (transaction) => {
			await transaction.query(slow);
			await sqlOn(url, "SET statement_timeout = 0; SELECT pg_sleep(0.5)");
			return await transaction.commit(slow);
		},
		{ unlimited: true },
	);
	expect(rows).toMatchObject([[{ text: "done" }]]);
});

test("just-in-time compilation is off in transactions, although the role has it on", async () => {
	const { connections } = await connected(await ownedBy("compiling", "SET jit = on"));
	const jit = { text: "SHOW jit" };
	expect(await connections.read((session) => session.query(jit))).toEqual([[{ jit: "off" }]]);
	expect(await connections.transaction((transaction) => transaction.commit(jit))).toEqual([[{ jit: "off" }]]);
});

test("a role that has reached its connection limit uses the connections that it has", async () => {
	const url = await ownedBy("few", "CONNECTION LIMIT 2");
	const { connections, lines } = await connected(url, { notify: false, connections: 5 });
	let maxOpen = 0;
	let open = 0;
	const numbers = Array.from({ length: 40 }, (_, n) => n);
	const rows = await Promise.all(
		numbers.map((n) =>
			connections.read(async (session) => {
				open += 1;
				maxOpen = Math.max(maxOpen, open);
				const [found] = await session.query({ text: "SELECT $1::int4 AS n, pg_sleep(0.01)", values: [n] });
				open -= 1;
				return found?.[0]?.n;
			}),
		),
	);
	expect(rows).toEqual(numbers);
	expect(maxOpen).toBe(2);
	expect(lines).toEqual([]);
});

test("a role that gets no connection at all fails with SQLSTATE 53300 until there is one", async () => {
	const url = await ownedBy("locked");
	const { connections } = await connected(url, { notify: false, connectTimeout: 300 });
	const one = () => connections.read(async (session) => (await session.query({ text: "SELECT 1 AS one" }))[0]);
	expect(await one()).toEqual([{ one: 1 }]);
	await databases.server.sql("ALTER ROLE locked CONNECTION LIMIT 0");
	await databases.server.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'locked'");
	await expect
		.poll(() => failureOf(one()), { timeout: 30_000 })
		.toMatchObject({ kind: "unavailable", cause: expect.stringContaining("SQLSTATE 53300") });
	await databases.server.sql("ALTER ROLE locked CONNECTION LIMIT -1");
	await expect.poll(() => failureOf(one()), { timeout: 30_000 }).toEqual([{ one: 1 }]);
});

test("updates are stored correctly with another collation, search_path and bytea_output", async () => {
	const url = await ownedBy("other", "SET search_path = nowhere", "SET bytea_output = escape");
	await databases.server.sql("DROP DATABASE of_other");
	await databases.server.sql(
		"CREATE DATABASE of_other OWNER other TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'und' LOCALE 'C'",
	);
	const store = await openStore(url);
	onTestFinished(() => store.close());
	const update = sample({ record: Buffer.from([0, 1, 92, 128, 255]), columns: { agentKind: "Z", title: "ΟΔΟΣ" } });
	const { sequence } = await append(store, update);
	expect(await store.get(update.conversationId)).toMatchObject({
		sequence,
		record: { bytes: new Uint8Array([0, 1, 92, 128, 255]) },
	});
});
