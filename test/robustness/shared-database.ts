import { setTimeout as delay } from "node:timers/promises";
import { PostgresServer } from "../store/postgres/server.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { TempFolder } from "../support/temp.ts";
import { Replica } from "./replica.ts";
import { ReplicaLoad } from "./replica-load.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";

const REPLICAS = 3;
/** Range of the pause between two failures, and maximum downtime of the program or database, in milliseconds. */
const PAUSE_RANGE = [200, 2500] as const;
const MAX_DOWNTIME = 1500;

/** Kinds of failure. A kind that is listed twice occurs twice as often. */
const KINDS = [
	"kill the program",
	"kill the program",
	"stop the program",
	"restart the database",
	"crash the database",
	"end sessions",
	"end sessions",
	"cut connections",
	"cut connections",
	"reset connections",
	"silence connections",
] as const;

/** A replica, and the proxy between it and the database. */
interface Member {
	readonly replica: Replica;
	readonly proxy: TcpProxy;
}

/** Three replicas of the program with one PostgreSQL, while programs, database and connections fail. */
export const sharedDatabase: Run = {
	name: "shared-database",
	about:
		"three programs on one PostgreSQL, which are killed, restarted and cut off; all that was acknowledged is compared",
	counted: "seconds",
	long: 120,
	short: 8,
	async run(count, random, report) {
		await using stack = new AsyncDisposableStack();
		const folder = stack.use(new TempFolder());
		const server = stack.use(await PostgresServer.create(folder.file("server")));
		await server.start();
		const members: Member[] = [];
		for (let n = 0; n < REPLICAS; n++) {
			const proxy = stack.use(await TcpProxy.start(() => server.port));
			const url = server.url().replace(`:${server.port}/`, `:${proxy.port}/`);
			// The statement timeout limits the time until a silent connection is noticed.
			const env = { DATABASE_URL: url, POSTGRES_STATEMENT_TIMEOUT: "3" };
			members.push({ replica: stack.use(await Replica.start(env, server.password, report)), proxy });
		}
		const load = stack.use(
			new ReplicaLoad(
				members.map(({ replica }) => replica),
				random.of("load"),
				report,
			),
		);
		const choices = random.of("troubles");
		const restarts: Promise<void>[] = [];
		for (const end = performance.now() + count * 1000; performance.now() < end; ) {
			await delay(choices.integer(...PAUSE_RANGE));
			const [kind, member] = [choices.pick(KINDS), choices.pick(members)];
			if (kind === undefined || member === undefined) throw new Error("there is nothing to choose from");
			report.answer("troubles", kind);
			const away = choices.integer(0, MAX_DOWNTIME);
			if (kind === "kill the program" || kind === "stop the program") {
				if (member.replica.address !== undefined) restarts.push(restart(member.replica, kind, away));
			} else await make(kind, away, choices.integer(10, 101), member.proxy, server, report);
		}
		await Promise.all(restarts);
		const before = load.acknowledged;
		await load.expectKept();
		report.expect(before > count, `only ${before} posts were acknowledged`);
		expectNoDeadlock(server, report);
	},
};

/** Ends a program, and starts it again after a time in milliseconds. */
async function restart(replica: Replica, kind: string, away: number): Promise<void> {
	await replica.end(kind === "kill the program" ? "SIGKILL" : "SIGTERM");
	await delay(away);
	await replica.again();
}

/**
 * Causes a failure of the database or of connections to it.
 *
 * @param share percentage of the sessions to end
 */
async function make(
	kind: Exclude<(typeof KINDS)[number], "kill the program" | "stop the program">,
	away: number,
	share: number,
	proxy: TcpProxy,
	server: PostgresServer,
	report: Report,
): Promise<void> {
	switch (kind) {
		case "restart the database":
		case "crash the database":
			expectNoDeadlock(server, report);
			await server.stop(kind === "restart the database" ? "fast" : "immediate");
			await delay(away);
			await server.start();
			return;
		case "end sessions":
			await server.sql(
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name <> '' AND random() * 100 < $1",
				[share],
			);
			return;
		case "cut connections":
		case "reset connections":
			return proxy.cut(kind === "reset connections");
		case "silence connections":
			return proxy.fallSilent();
	}
}

/** All transactions of the engine take their locks in the same order, so that no deadlock is possible. */
function expectNoDeadlock(server: PostgresServer, report: Report): void {
	report.expect(!server.log.includes("deadlock detected"), "transactions waited for each other in a circle");
}
