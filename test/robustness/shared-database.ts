import { setTimeout as delay } from "node:timers/promises";
import { PostgresServer } from "../store/postgres/server.ts";
import type { Random } from "../support/random.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { TempFolder } from "../support/temp.ts";
import { Replica } from "./replica.ts";
import { ReplicaLoad } from "./replica-load.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";

const REPLICAS = 3;
/** Bounds of the pause between two troubles, and how long the program or the database is away, in milliseconds. */
const PAUSE = [200, 2500] as const;
const LONGEST_AWAY = 1500;

/** What can go wrong. Those that are there twice come twice as often. */
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

/** One trouble of the plan. Times are in milliseconds. */
interface Trouble {
	readonly kind: (typeof KINDS)[number];
	readonly pause: number;
	readonly replica: number;
	readonly away: number;
	/** Of a hundred sessions, how many are ended. */
	readonly share: number;
}

/** A replica, and its way to the database. */
interface Member {
	readonly replica: Replica;
	readonly way: TcpProxy;
}

/** Three replicas of the program on one PostgreSQL, while programs, database and connections fail. */
export const sharedDatabase: Run = {
	name: "shared-database",
	about:
		"three programs on one PostgreSQL, which are killed, restarted and cut off; all that was acknowledged is compared",
	counted: "seconds",
	long: 120,
	short: 15,
	async run(count, random, report) {
		await using stack = new AsyncDisposableStack();
		const folder = stack.use(new TempFolder());
		const server = stack.use(await PostgresServer.create(folder.file("server")));
		await server.start();
		const members: Member[] = [];
		for (let n = 0; n < REPLICAS; n++) {
			const way = stack.use(await TcpProxy.start(() => server.port));
			const url = server.url().replace(`:${server.port}/`, `:${way.port}/`);
			// Connections that fall silent are noticed after the limit of a statement.
			const env = { DATABASE_URL: url, POSTGRES_STATEMENT_TIMEOUT: "3", POSTGRES_LOCK_TIMEOUT: "2" };
			members.push({ replica: stack.use(await Replica.start(env, server.password, report)), way });
		}
		const load = stack.use(
			new ReplicaLoad(
				members.map(({ replica }) => replica),
				random.of("load"),
				report,
			),
		);
		const plan = planOf(random.of("plan"), count * 1000);
		const restarts: Promise<void>[] = [];
		for (const trouble of plan) {
			await delay(trouble.pause);
			report.answer("troubles", trouble.kind);
			const member = members[trouble.replica];
			if (member === undefined) throw new Error("there is no such replica");
			await make(trouble, member, server, restarts, report);
		}
		await Promise.all(restarts);
		const before = load.acknowledged;
		await load.expectKept();
		report.expect(before > count, `only ${before} posts were acknowledged`);
		expectNoDeadlock(server, report);
	},
};

/** Troubles that take about a given time, in milliseconds. */
function planOf(random: Random, duration: number): Trouble[] {
	const plan: Trouble[] = [];
	for (let passed = 0; passed < duration; ) {
		const trouble = {
			kind: random.pick(KINDS) ?? KINDS[0],
			pause: random.integer(...PAUSE),
			replica: random.integer(0, REPLICAS),
			away: random.integer(0, LONGEST_AWAY),
			share: random.integer(10, 101),
		};
		passed += trouble.pause + (trouble.kind.endsWith("the database") ? trouble.away : 0);
		plan.push(trouble);
	}
	return plan;
}

/** Makes a trouble. What ends by itself is left to `restarts`. */
async function make(
	{ kind, away, share }: Trouble,
	{ replica, way }: Member,
	server: PostgresServer,
	restarts: Promise<void>[],
	report: Report,
): Promise<void> {
	switch (kind) {
		case "kill the program":
		case "stop the program": {
			if (replica.address === undefined) return;
			const end = async (): Promise<void> => {
				await replica.end(kind === "kill the program" ? "SIGKILL" : "SIGTERM");
				await delay(away);
				await replica.again();
			};
			restarts.push(end());
			return;
		}
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
			way.cut(kind === "reset connections");
			return;
		case "silence connections":
			way.fallSilent();
			return;
	}
}

/** Transactions of the engine take their locks in one order, so they never wait for each other in a circle. */
function expectNoDeadlock(server: PostgresServer, report: Report): void {
	report.expect(!server.log.includes("deadlock detected"), "transactions waited for each other in a circle");
}
