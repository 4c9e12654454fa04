import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { setTimeout as delay, setImmediate } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { CHANNEL } from "../../../src/store/postgres/connections.ts";
import { commitError } from "../../../src/store/postgres/failures.ts";
import type { Transaction } from "../../../src/store/postgres/transaction.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { TempFolder } from "../../support/temp.ts";
import { connected, failureOf } from "./connecting.ts";
import { PostgresServer } from "./server.ts";

const folder = new TempFolder();
let server: PostgresServer;

beforeAll(async () => {
	server = await PostgresServer.create(folder.file("server"));
	await server.start();
	await server.sql("CREATE TABLE entries (id int8 PRIMARY KEY, bytes bytea)");
});

afterAll(async () => {
	await server[Symbol.asyncDispose]();
	folder[Symbol.dispose]();
});

beforeEach(async () => {
	await server.sql("TRUNCATE entries");
});

const insert = (id: bigint) => ({ text: "INSERT INTO entries VALUES ($1, $2)", values: [id, Buffer.from([1, 2])] });
const stored = async () => (await server.sql("SELECT id FROM entries ORDER BY id")).map(({ id }) => id);
/** Changes a setting by a statement of the superuser, and resets it at the end of the test. */
async function setting(set: string, reset: string) {
	onTestFinished(async () => {
		await server.sql(reset);
		await server.sql("SELECT pg_reload_conf()");
	});
	await server.sql(set);
	await server.sql("SELECT pg_reload_conf()");
}
/** Returns the server processes of these tests' connections that meet an SQL condition. */
const processes = async (condition: string) =>
	(
		await server.sql(
			`SELECT pid FROM pg_stat_activity WHERE application_name = 'conversation-update-webhook-service' AND ${condition}`,
		)
	).map(({ pid }) => Number(pid));

/** Returns the port of a listening server. */
function portOf(listening: Server): number {
	const address = listening.address();
	if (typeof address !== "object" || address === null) throw new Error("the server does not listen");
	return address.port;
}

describe("transactions", () => {
	test("return rows in the order of the queries, with int8 as bigint and bytea as Buffer", async () => {
		const { connections } = await connected(server.url());
		const rows = await connections.transaction(async (transaction) => {
			await transaction.query(insert(2n ** 62n), insert(1n));
			return transaction.commit(
				{ text: "SELECT * FROM entries ORDER BY id" },
				{ text: "SELECT $1::int4 AS number, $2::text AS text", values: [7, "ü"] },
			);
		});
		const bytes = Buffer.from([1, 2]);
		expect(rows).toEqual([
			[
				{ id: 1n, bytes },
				{ id: 2n ** 62n, bytes },
			],
			[{ number: 7, text: "ü" }],
		]);
		expect(await stored()).toEqual(["1", String(2n ** 62n)]);
	});

	test("commit when the work succeeds, and roll back when it fails", async () => {
		const { connections } = await connected(server.url());
		expect(await connections.transaction(async (transaction) => (await transaction.query(insert(1n))).length)).toBe(1);
		const failed = connections.transaction(async (transaction) => {
			await transaction.query(insert(2n));
			throw new Error("the work failed");
		});
		expect(await failureOf(failed)).toEqual({ type: "Error", message: "the work failed" });
		expect(await connections.transaction(async () => "nothing")).toBe("nothing");
		expect(await stored()).toEqual(["1"]);
	});

	test("also work over a Unix socket", async () => {
		const url = server.url().replace("@127.0.0.1:", `@${encodeURIComponent(folder.file("server"))}:`);
		const { connections } = await connected(url);
		const text = "SELECT inet_server_addr() AS address";
		expect(await connections.read((session) => session.query({ text }))).toEqual([[{ address: null }]]);
	});

	test("are rolled back as a whole when a statement fails, with an error that shows no values", async () => {
		const { connections } = await connected(server.url());
		await server.sql("INSERT INTO entries VALUES (3)");
		const failure = {
			type: "DatabaseError",
			kind: "internal",
			message: "the store failed while processing this request",
			cause: "constraint entries_pkey (SQLSTATE 23505)",
		};
		const repeated = [insert(4n), insert(3n), insert(5n)];
		expect(await failureOf(connections.transaction((tx) => tx.commit(...repeated)))).toEqual(failure);
		expect(await failureOf(connections.transaction((tx) => tx.query(...repeated)))).toEqual(failure);
		const swallowed = connections.transaction((tx) => tx.query(...repeated).catch(() => undefined));
		expect(await failureOf(swallowed)).toEqual(failure);
		expect(await stored()).toEqual(["3"]);
	});

	test.each([
		[true, ["numbers"]],
		[false, []],
	])("keep a named statement prepared if each connection keeps its session: %s", async (notify, names) => {
		const { connections } = await connected(server.url(), { notify, connections: 1 });
		const numbers = (values: number[]) =>
			connections.read((session) =>
				session.query({ name: "numbers", text: "SELECT unnest($1::int4[]) AS number", values: [values] }),
			);
		expect([await numbers([1, 2]), await numbers([3])]).toEqual([[[{ number: 1 }, { number: 2 }]], [[{ number: 3 }]]]);
		const text = "SELECT name FROM pg_prepared_statements";
		expect(await connections.read((session) => session.query({ text }))).toEqual([names.map((name) => ({ name }))]);
		const failed = connections.transaction((transaction) =>
			transaction.query({ name: "quotient", text: "SELECT 1 / $1::int4", values: [0] }),
		);
		expect(await failureOf(failed)).toMatchObject({ cause: "(SQLSTATE 22012)" });
		expect(await numbers([4])).toEqual([[{ number: 4 }]]);
	});

	test("fail behind a pooler that shares sessions, with an error that names the required setting", async () => {
		const { connections } = await connected(server.url(), { connections: 1 });
		const query = { name: "one", text: "SELECT $1::int4 AS one", values: [1] };
		const read = () => connections.read((session) => session.query(query));
		await read();
		// As if the pooler's next transaction got a session in which the statement is not prepared.
		await connections.read((session) => session.query({ text: "DEALLOCATE ALL" }));
		expect(await failureOf(read())).toMatchObject({
			kind: "unavailable",
			message: "the database is behind a pooler that needs POSTGRES_NOTIFY=off",
		});
	});

	test("for reads cannot write", async () => {
		const { connections } = await connected(server.url());
		expect(await connections.read((session) => session.query({ text: "SELECT 1 AS one" }))).toEqual([[{ one: 1 }]]);
		await expect(connections.read((session) => session.query(insert(1n)))).rejects.toMatchObject({
			kind: "unavailable",
			sqlState: "25006",
		});
		expect(await stored()).toEqual([]);
	});

	test("have statement and lock timeouts, unless they are unlimited", async () => {
		const limits = { statementTimeout: 200, lockTimeout: 100 };
		const { connections } = await connected(server.url(), limits);
		const run = (text: string) => (transaction: Transaction) => transaction.query({ text });
		expect(await failureOf(connections.transaction(run("SELECT pg_sleep(60)")))).toEqual({
			type: "DatabaseError",
			kind: "unavailable",
			message: "the database did not finish in time",
			cause: "canceling statement due to statement timeout (SQLSTATE 57014)",
		});
		await connections.transaction(async (holder) => {
			await holder.query(insert(1n));
			expect(await failureOf(connections.transaction((waiter) => waiter.query(insert(1n))))).toEqual({
				type: "DatabaseError",
				kind: "unavailable",
				message: "a lock in the database was not released in time",
				cause: "canceling statement due to lock timeout (SQLSTATE 55P03)",
			});
		});
		const unlimited = connections.transaction(run("SELECT pg_sleep(0.5), 'done' AS text"), { unlimited: true });
		expect(await unlimited).toMatchObject([[{ text: "done" }]]);
		const lock = run("SELECT pg_advisory_xact_lock(7), 'locked' AS text");
		const waiting = await connections.transaction(async (holder) => {
			await lock(holder);
			const waiter = connections.transaction(lock, { unlimited: true });
			await delay(3 * limits.lockTimeout);
			return { waiter };
		});
		expect(await waiting.waiter).toMatchObject([[{ text: "locked" }]]);
	});

	test("are retried once after a serialization failure", async () => {
		const { connections } = await connected(server.url());
		const fail = { text: "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$" };
		const attempts: number[] = [];
		await connections.transaction(async (transaction) => {
			attempts.push(attempts.length);
			return transaction.commit(insert(BigInt(attempts.length)), ...(attempts.length === 1 ? [fail] : []));
		});
		expect([attempts, await stored()]).toEqual([[0, 1], ["2"]]);
		const always = connections.transaction((transaction) => transaction.commit(insert(9n), fail));
		expect(await failureOf(always)).toMatchObject({ message: "the database aborted conflicting transactions" });
		expect(await stored()).toEqual(["2"]);
	});

	test("are retried when the connection breaks before the commit", async () => {
		const { connections } = await connected(server.url());
		let attempts = 0;
		await connections.transaction(async (transaction) => {
			const [rows] = await transaction.query({ text: "SELECT pg_backend_pid() AS pid" });
			attempts++;
			await transaction.query(insert(BigInt(attempts)));
			if (attempts === 1) await server.sql("SELECT pg_terminate_backend($1, 10000)", [rows?.[0]?.pid]);
			return transaction.commit(insert(10n));
		});
		expect([attempts, await stored()]).toEqual([2, ["2", "10"]]);
	});

	test("share a limited number of connections, and fail when none is free in time", async () => {
		const { connections } = await connected(server.url(), { connections: 2, connectTimeout: 300 });
		const gate = Promise.withResolvers<void>();
		const holders = [1, 2].map(() =>
			connections.read(async (session) => {
				await session.query({ text: "SELECT 1" });
				await gate.promise;
			}),
		);
		await expect.poll(() => processes("state = 'idle in transaction'"), { timeout: 30_000 }).toHaveLength(2);
		expect(await failureOf(connections.transaction((transaction) => transaction.commit(insert(1n))))).toEqual({
			type: "ServiceError",
			kind: "unavailable",
			message: "all connections to the database are in use",
		});
		const waiter = connections.transaction((transaction) => transaction.commit(insert(2n)));
		gate.resolve();
		await Promise.all([...holders, waiter]);
		expect(await stored()).toEqual(["2"]);
	});
});

describe("a commit whose outcome is unknown", () => {
	const unknown = {
		type: "CommitUnknown",
		kind: "unavailable",
		message: "the database did not report whether the commit succeeded",
	};

	test("is reported when the connection breaks during COMMIT", async () => {
		await using proxy = await TcpProxy.start(() => server.port);
		const { connections } = await connected(server.url().replace(`:${server.port}/`, `:${proxy.port}/`));
		await server.sql(`
			CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
			CREATE CONSTRAINT TRIGGER late AFTER INSERT ON entries DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW EXECUTE FUNCTION wait()`);
		onTestFinished(async () => void (await server.sql("DROP FUNCTION wait CASCADE")));
		let attempts = 0;
		const outcome = failureOf(
			connections.transaction((transaction) => {
				attempts++;
				return transaction.commit(insert(1n));
			}),
		);
		await expect.poll(() => processes("wait_event = 'PgSleep'"), { timeout: 30_000 }).toHaveLength(1);
		proxy.cut(true);
		expect(await outcome).toMatchObject(unknown);
		expect(attempts).toBe(1);
		await expect.poll(stored, { timeout: 30_000 }).toEqual(["1"]);
	});

	test("is reported when the server stops waiting for its synchronous standby", async () => {
		const { connections } = await connected(server.url());
		onTestFinished(() => server.setSynchronousStandbys(""));
		await server.setSynchronousStandbys("away");
		const outcome = failureOf(connections.transaction((transaction) => transaction.commit(insert(1n))));
		await expect.poll(() => processes("wait_event = 'SyncRep'"), { timeout: 30_000 }).toHaveLength(1);
		const [pid] = await processes("wait_event = 'SyncRep'");
		await server.sql("SELECT pg_cancel_backend($1)", [pid]);
		expect(await outcome).toEqual({
			...unknown,
			cause: "canceling wait for synchronous replication due to user request",
		});
	});
});

test.each([
	["25P04", "transaction timeout", "CommitUnknown"],
	["57P01", "administrator command", "CommitUnknown"],
	["23505", "duplicate key", "DatabaseError"],
	["40001", "serialization failure", "DatabaseError"],
])("a COMMIT that fails with %s, %s, results in a %s", (code, message, type) => {
	const error = new pg.DatabaseError(message, 0, "error");
	error.code = code;
	expect(commitError(error).constructor.name).toBe(type);
});

describe("an unavailable database", () => {
	const away = { type: "ServiceError", kind: "unavailable", message: "no server of the database accepts writes" };

	test("is reported at once, logged once per outage, and used again when it is back", async () => {
		const { connections, lines } = await connected(server.url());
		const one = () => connections.read(async (session) => (await session.query({ text: "SELECT 1 AS one" }))[0]);
		expect(await one()).toEqual([{ one: 1 }]);
		for (const mode of ["fast", "immediate"] as const) {
			await server.stop(mode);
			const cause = `127.0.0.1:${server.port}: connect ECONNREFUSED 127.0.0.1:${server.port}`;
			// The first errors may be those of a server that is about to stop.
			await expect.poll(() => failureOf(one()), { timeout: 30_000 }).toEqual({ ...away, cause });
			const failures = await Promise.all(Array.from({ length: 50 }, () => failureOf(one())));
			for (const failure of failures) expect(failure).toEqual({ ...away, cause });
			await server.start();
			await expect.poll(() => failureOf(one()), { timeout: 30_000 }).toEqual([{ one: 1 }]);
		}
		expect(lines).toEqual(["no primary of the database can be reached", "no primary of the database can be reached"]);
	});

	test("at one silent host does not delay connections to the next host", async () => {
		const sockets: Socket[] = [];
		const silent = createServer((socket) => sockets.push(socket)).listen(0, "127.0.0.1");
		await once(silent, "listening");
		onTestFinished(() => {
			for (const socket of sockets) socket.destroy();
			silent.close();
		});
		const url = server.url().replace("@", `@127.0.0.1:${portOf(silent)},`);
		const { connections } = await connected(url, { connectTimeout: 600_000 });
		await connections.transaction((transaction) => transaction.commit(insert(1n)));
		expect(await stored()).toEqual(["1"]);
	});

	test("that is slow at each step of connecting fails its callers", async () => {
		const connectTimeout = 1000;
		const slow = createServer((socket) => {
			socket.on("error", () => undefined);
			// AuthenticationOk and ReadyForQuery, and then no answer to any query.
			const welcome = Buffer.from("5200000008000000005a0000000549", "hex");
			socket.once("data", () => setTimeout(() => socket.write(welcome), connectTimeout / 2));
		}).listen(0, "127.0.0.1");
		await once(slow, "listening");
		onTestFinished(() => void slow.close());
		let port = server.port;
		await using proxy = await TcpProxy.start(() => port);
		const url = `${server.url().replace(`:${server.port}/`, `:${proxy.port}/`)}?sslmode=disable`;
		const { connections } = await connected(url, { connectTimeout, connections: 1 });
		const one = () => connections.read(async (session) => (await session.query({ text: "SELECT 1 AS one" }))[0]);
		port = portOf(slow);
		proxy.cut(false);
		await expect.poll(() => proxy.open, { timeout: 30_000 }).toBe(0);
		expect(await failureOf(one())).toEqual({ ...away, cause: `127.0.0.1:${proxy.port}: Query read timeout` });
		port = server.port;
		await expect.poll(() => failureOf(one()), { timeout: 30_000 }).toEqual([{ one: 1 }]);
	});

	test("is reported with the cause: a wrong password, an unknown database, or synchronous_commit off", async () => {
		const { port } = server;
		const url = server.url();
		const cause = (to: string) => failureOf(connected(to));
		expect(await cause(url.replace(server.password, "canary"))).toEqual({
			...away,
			cause: `127.0.0.1:${port}: password authentication failed for user "postgres" (SQLSTATE 28P01)`,
		});
		expect(await cause(url.replace(/postgres$/, "nowhere"))).toEqual({
			...away,
			cause: `127.0.0.1:${port}: database "nowhere" does not exist (SQLSTATE 3D000)`,
		});
		await setting("ALTER ROLE postgres SET synchronous_commit = off", "ALTER ROLE postgres RESET synchronous_commit");
		expect(await cause(url)).toEqual({
			...away,
			cause: `127.0.0.1:${port}: synchronous_commit is off, so commits could be lost`,
		});
	});

	test("is reported while it is read-only, and used again afterwards", async () => {
		const { connections } = await connected(server.url());
		const write = (id: bigint) => connections.transaction((transaction) => transaction.commit(insert(id)));
		await write(1n);
		await setting(
			"ALTER SYSTEM SET default_transaction_read_only = on",
			"ALTER SYSTEM RESET default_transaction_read_only",
		);
		await expect
			.poll(() => failureOf(write(2n)), { timeout: 30_000 })
			.toEqual({ ...away, cause: `127.0.0.1:${server.port}: the server is a standby or read-only` });
		await server.sql("ALTER SYSTEM RESET default_transaction_read_only");
		await server.sql("SELECT pg_reload_conf()");
		await expect.poll(() => failureOf(write(3n)), { timeout: 30_000 }).toEqual([[]]);
		// The setting takes a moment to reach each session, so 2 may be there.
		expect((await stored()).filter((id) => id !== "2")).toEqual(["1", "3"]);
	});

	test("that falls silent is abandoned, and the work is retried over a new connection", async () => {
		await using proxy = await TcpProxy.start(() => server.port);
		const url = server.url().replace(`:${server.port}/`, `:${proxy.port}/`);
		const { connections } = await connected(url, { statementTimeout: 200 });
		let attempts = 0;
		const write = (id: bigint) =>
			connections.transaction((transaction) => {
				attempts++;
				return attempts === 1 ? transaction.commit(insert(id)) : transaction.query(insert(id));
			});
		await write(1n);
		// The connection has been returned to the pool by then.
		await setImmediate();
		proxy.fallSilent();
		// The silent connection is closed, and the work is retried over a new one.
		await write(2n);
		expect([attempts, await stored()]).toEqual([3, ["1", "2"]]);
	});
});

describe("a listener", () => {
	test("receives the notifications of its channel, also after the connection was renewed", async () => {
		const { connections } = await connected(server.url());
		const heard: (string | undefined)[] = [];
		connections.listen((payload) => heard.push(payload));
		const notify = async (channel: string, payload: string) => {
			await connections.transaction((transaction) =>
				transaction.commit({ text: "SELECT pg_notify($1, $2)", values: [channel, payload] }),
			);
		};
		const listening = "query LIKE 'LISTEN%'";
		await expect.poll(() => processes(listening), { timeout: 30_000 }).toHaveLength(1);
		await expect.poll(() => heard, { timeout: 30_000 }).toContain(undefined);
		await notify(CHANNEL, "1");
		await notify("others", "2");
		await notify(CHANNEL, "3");
		await expect.poll(() => heard, { timeout: 30_000 }).toContain("3");
		const [pid] = await processes(listening);
		await server.sql("SELECT pg_terminate_backend($1, 10000)", [pid]);
		// A notification that is sent before it listens again is missed, so the test repeats it.
		const again = async () => {
			await notify(CHANNEL, "4");
			return heard;
		};
		await expect.poll(again, { timeout: 30_000 }).toContain("4");
		expect([...new Set(heard.filter((payload) => payload !== undefined))]).toEqual(["1", "3", "4"]);
	});

	test("is called periodically when notifications are off", async () => {
		const { connections } = await connected(server.url(), { notify: false });
		const heard: (string | undefined)[] = [];
		connections.listen((payload) => heard.push(payload));
		await expect.poll(() => heard.length, { timeout: 30_000 }).toBeGreaterThan(1);
		expect([connections.notifies, new Set(heard)]).toEqual([false, new Set([undefined])]);
		expect(await processes("query LIKE 'LISTEN%'")).toEqual([]);
	});
});
