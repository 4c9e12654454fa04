/**
 * Tests the real program through PgBouncer in transaction mode: `npm run test:pgbouncer`. PgBouncer must be installed
 * (Debian: `apt-get install pgbouncer`), because npm does not have it. The path of its program can be an argument.
 */
import { deepEqual, equal } from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { readConfig } from "../src/config/config.ts";
import { ServiceError } from "../src/errors.ts";
import { type Connections, openConnections } from "../src/store/postgres/connections.ts";
import { CommitUnknown, DatabaseError } from "../src/store/postgres/failures.ts";
import { Replica } from "../test/robustness/replica.ts";
import { ReplicaLoad } from "../test/robustness/replica-load.ts";
import { Report } from "../test/robustness/report.ts";
import { identity, PostgresServer } from "../test/store/postgres/server.ts";
import { freePort } from "../test/support/free-port.ts";
import { Random } from "../test/support/random.ts";
import { TempFolder } from "../test/support/temp.ts";

/** Maximum number of PgBouncer's connections to the server. The clients have more. */
const SERVER_CONNECTIONS = 3;
const WRITERS = 12;
const ENTRIES = 100;
const REPLICAS = 2;
/** Number of acknowledged posts before PgBouncer is killed, and after it. */
const POSTS = 200;

using folder = new TempFolder();
await using server = await PostgresServer.create(folder.file("server"));
await server.start();
await server.sql("CREATE TABLE entries (writer int4, number int4, bytes bytea)");

const port = await freePort();
const users = folder.file("users.txt");
writeFileSync(users, `"postgres" "${server.password}"\n`);
const settings = folder.file("pgbouncer.ini");
writeFileSync(
	settings,
	`[databases]
postgres = host=127.0.0.1 port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${users}
pool_mode = transaction
default_pool_size = ${SERVER_CONNECTIONS}
`,
);
for (const file of [users, settings]) {
	if (identity.uid !== undefined) chownSync(file, identity.uid, identity.gid);
	chmodSync(file, 0o600);
}

/** Starts PgBouncer and waits until it accepts connections. */
async function startBouncer(): Promise<ChildProcess> {
	const bouncer = spawn(process.argv[2] ?? "pgbouncer", [settings], {
		...identity,
		stdio: ["ignore", "ignore", "pipe"],
	});
	const ready = Promise.withResolvers<void>();
	let log = "";
	bouncer.on("error", (error) => ready.reject(new Error("PgBouncer is not installed", { cause: error })));
	bouncer.on("close", () => ready.reject(new Error(`PgBouncer has ended: ${log}`)));
	bouncer.stderr.setEncoding("utf8").on("data", (text: string) => {
		log += text;
		if (log.includes("process up")) ready.resolve();
	});
	await ready.promise;
	return bouncer;
}

async function killBouncer(bouncer: ChildProcess): Promise<void> {
	const closed = once(bouncer, "close");
	bouncer.kill("SIGKILL");
	await closed;
}

let bouncer = await startBouncer();
try {
	const url = server.url().replace(`:${server.port}/`, `:${port}/`);
	const { database } = readConfig({ DATABASE_URL: url, POSTGRES_NOTIFY: "off", POSTGRES_CONNECTIONS: "8" });
	if (database.engine !== "postgres") throw new Error("the URL is of PostgreSQL");
	await using connections = await openConnections(database, { error: (_, message) => console.log(message) });

	await fails(connections, "SELECT 1 / 0", "22012");
	await limits(connections);
	deepEqual(await write(connections, 0, async () => undefined), { failures: 0 });
	console.log("writers, reads and errors: as without PgBouncer");
	const outcome = await write(connections, WRITERS, async () => {
		await killBouncer(bouncer);
		await delay(300);
		bouncer = await startBouncer();
	});
	console.log(`PgBouncer killed and started again: ${outcome.failures} failures, then all went on`);
	await polls(connections);
	console.log("listeners are called by the poll");
	await programs(url);
} finally {
	await killBouncer(bouncer);
}

async function fails(connections: Connections, text: string, sqlState: string): Promise<void> {
	const error: unknown = await connections.transaction((tx) => tx.commit({ text })).catch((reason: unknown) => reason);
	equal(error instanceof DatabaseError ? error.sqlState : error, sqlState);
}

/** Checks that the limits of a transaction apply to it, and not to the sessions that clients share. */
async function limits(connections: Connections): Promise<void> {
	const text = "SELECT current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock";
	deepEqual(await connections.read((session) => session.query({ text })), [[{ statement: "10s", lock: "5s" }]]);
	const unlimited = await connections.transaction((tx) => tx.commit({ text }), { unlimited: true });
	deepEqual(unlimited, [[{ statement: "0", lock: "0" }]]);
}

/** Writers append concurrently. An acknowledged entry must be stored once, one with an unknown outcome at most once. */
async function write(connections: Connections, first: number, disturb: () => Promise<void>) {
	let failures = 0;
	const unknown = new Set<string>();
	const bytes = Buffer.alloc(20_000, 7);
	const writers = Array.from({ length: WRITERS }, async (_, index) => {
		for (let number = 0; number < ENTRIES; ) {
			try {
				const values = [first + index, number, bytes];
				await connections.transaction(async (transaction) => {
					await transaction.query({ text: "SELECT 1" });
					return transaction.commit({ text: "INSERT INTO entries VALUES ($1, $2, $3)", values });
				});
				number++;
			} catch (error) {
				if (!(error instanceof ServiceError) || error.kind !== "unavailable") throw error;
				failures++;
				if (error instanceof CommitUnknown) unknown.add(`${first + index}/${number++}`);
				else await delay(50);
			}
		}
	});
	const disturbed = delay(100).then(disturb);
	await Promise.all([...writers, disturbed]);
	const text = `SELECT writer, number, count(*)::int4 AS times FROM entries WHERE writer >= $1 GROUP BY 1, 2`;
	const [rows = []] = await connections.read((session) => session.query({ text, values: [first] }));
	const times = new Map(rows.map((row) => [`${row.writer}/${row.number}`, row.times]));
	for (let writer = first; writer < first + WRITERS; writer++)
		for (let number = 0; number < ENTRIES; number++) {
			const key = `${writer}/${number}`;
			if (!unknown.has(key) || times.has(key)) equal(times.get(key), 1, key);
		}
	return { failures };
}

async function polls(connections: Connections): Promise<void> {
	const { promise, resolve } = Promise.withResolvers<string | undefined>();
	connections.listen(resolve);
	equal(await promise, undefined);
}

/**
 * Posts to services that must recover by themselves after PgBouncer is killed, with all acknowledged posts stored once.
 */
async function programs(url: string): Promise<void> {
	await using stack = new AsyncDisposableStack();
	const report = new Report();
	const env = { DATABASE_URL: url, POSTGRES_NOTIFY: "off", POSTGRES_CONNECTIONS: "8" };
	const replicas: Replica[] = [];
	for (let n = 0; n < REPLICAS; n++) replicas.push(stack.use(await Replica.start(env, server.password, report)));
	const load = stack.use(new ReplicaLoad(replicas, Random.ofSeed(), report));
	const morePosts = async (): Promise<void> => {
		const enough = load.acknowledged + POSTS;
		while (load.acknowledged < enough) await delay(20);
	};
	await morePosts();
	await killBouncer(bouncer);
	await delay(300);
	bouncer = await startBouncer();
	await morePosts();
	await load.expectKept();
	for (const line of report.lines()) console.log(line);
	deepEqual(report.broken, []);
}
