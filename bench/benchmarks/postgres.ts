import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, ratioFigure, round } from "../figures.ts";
import { type LoadTarget, type Measurement, measurePairs, ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { connect, DatabaseServer, sqlOn } from "../processes/database-server.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { processorSeconds } from "../processes/usage.ts";
import { type InsertPlan, insertResult } from "../yardsticks/insert-plan.ts";
import { fillHistory, noteOf, type Report, webhookLoad } from "./parts.ts";

/** Number of conversations in each replica's load. No two replicas write to the same conversation. */
const CONVERSATIONS = 1_000;
/** Number of connections that take numbers from the counter concurrently. */
const COUNTER_CONNECTIONS = 8;
/** Latency of a commit on a network disk or with a synchronous standby, in seconds. */
const COMMIT_LATENCY = 0.005;

/**
 * Delays each commit that takes sequence numbers. The delay comes at its end, while all locks are held, like the wait
 * for a synchronous standby.
 */
const DELAY_COMMITS = `
	CREATE FUNCTION public.delay_commit() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_sleep(${COMMIT_LATENCY});
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER delay_commit AFTER UPDATE ON conversation_updates.state
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.delay_commit();
`;

/** Durable ingest with PostgreSQL, compared with the driver alone and with the SQLite engine. */
export const postgresIngest: Benchmark = {
	name: "postgres-ingest",
	about: "webhook ingest into PostgreSQL, durable, against the driver that inserts the same rows, and against SQLite",
	async run(settings, report) {
		await using server = await DatabaseServer.start(settings.folder);
		const url = await filledDatabase(server, report);
		const copy = await server.create(url);
		await using folder = await DiskFolder.create(settings.folder);
		await fillHistory(folder.database, "small", CONVERSATIONS, report);
		await using driver = await Child.start("yardsticks/postgres.ts", z.unknown());
		await using client = await Child.start("load/http.ts", z.unknown());
		await using service = await Service.start({ database: url, profile: settings.profile });
		const subject = await replica(service, client, 0);
		await subject.load(settings);
		const group = await groupSize(url, () => subject.load(settings));
		const against = async (reference: LoadTarget, name: string, target: Figure["target"]): Promise<Figure> => {
			const pairs = await measurePairs(settings, reference, subject, report);
			return ratioFigure(name, ratiosOf(pairs), target, noteOf(pairs));
		};
		const inserts = inserting(driver, copy, Math.round(group));
		const alone = await against(inserts, "postgres-ingest: against the driver", { at: "least", value: 0.6 });
		await using sqlite = await Service.start({ database: folder.database });
		const other = new ServerTarget(client, { ...(await webhookLoad("small", sqlite)), name: "SQLite" }, CONVERSATIONS);
		const engines = await against(other, "postgres-ingest: against SQLite", undefined);
		return [alone, engines, { name: "postgres-ingest: updates in a group", value: group, unit: "", note: "" }];
	},
};

/** Two replicas compared with one. */
export const postgresReplicas: Benchmark = {
	name: "postgres-replicas",
	about: "webhook ingest of two replicas with one PostgreSQL, durable, against one",
	async run(settings, report) {
		await using server = await DatabaseServer.start(settings.folder);
		const figures: Figure[] = [];
		for (const delayed of [false, true]) {
			const url = await filledDatabase(server, report);
			if (delayed) await sqlOn(url, DELAY_COMMITS);
			await using replicas = await Replicas.start(url);
			const pairs = await measurePairs(settings, replicas.one, replicas.both, report);
			const name = `postgres-replicas: two against one${delayed ? `, ${COMMIT_LATENCY * 1000} ms for a commit` : ""}`;
			figures.push(ratioFigure(name, ratiosOf(pairs), undefined, noteOf(pairs)));
			const group = await groupSize(url, () => replicas.both.load(settings));
			figures.push({ name: `${name}: updates in a group`, value: group, unit: "", note: "" });
		}
		return figures;
	},
};

/** Rate of commits that lock the only counter row. */
export const postgresCounter: Benchmark = {
	name: "postgres-counter",
	about: `commits a second that take numbers from the one counter row, also with ${COMMIT_LATENCY * 1000} ms for a commit`,
	async run(settings, report) {
		await using server = await DatabaseServer.start(settings.folder);
		const url = await filledDatabase(server, report);
		const figures: Figure[] = [];
		for (const delayed of [false, true]) {
			if (delayed) await sqlOn(url, DELAY_COMMITS);
			for (const connections of [1, COUNTER_CONNECTIONS]) {
				const rates: number[] = [];
				for (let i = 0; i < settings.rounds; i++) rates.push(await commitRate(url, connections, settings.milliseconds));
				const name = `postgres-counter: ${connections} at a time${delayed ? `, ${COMMIT_LATENCY * 1000} ms for a commit` : ""}`;
				report(`  ${name}: ${rates.map(round).join(", ")}/s`);
				const spread = [Math.min(...rates), Math.max(...rates)] as const;
				figures.push({ name, value: median(rates), unit: "/s", spread, note: "" });
			}
		}
		return figures;
	},
};

/** Creates a database with one update of each conversation of a load. */
async function filledDatabase(server: DatabaseServer, report: Report): Promise<string> {
	const url = await server.create();
	await fillHistory(url, "small", CONVERSATIONS, report);
	return url;
}

/** Returns the load of a replica, whose conversations no other replica's load uses. */
async function replica(service: Service, client: Child<unknown>, number: number): Promise<ServerTarget> {
	const firstConversation = number * CONVERSATIONS;
	const load = { ...(await webhookLoad("small", service)), conversations: CONVERSATIONS, firstConversation };
	return new ServerTarget(client, load, number === 0 ? CONVERSATIONS : 0);
}

/** Two replicas of the service. Either both or only the first one are put under load. */
class Replicas implements AsyncDisposable {
	readonly one: LoadTarget;
	readonly both: LoadTarget;
	readonly #stack: AsyncDisposableStack;

	private constructor(stack: AsyncDisposableStack, one: ServerTarget, other: ServerTarget) {
		this.#stack = stack;
		this.one = one;
		this.both = {
			name: "two replicas",
			async load(limits) {
				const half = { ...limits, concurrency: limits.concurrency / 2 };
				return sum(await Promise.all([one.load(half), other.load(half)]));
			},
		};
	}

	static async start(database: string): Promise<Replicas> {
		await using stack = new AsyncDisposableStack();
		const start = async (number: number): Promise<ServerTarget> => {
			const service = stack.use(await Service.start({ database }));
			return replica(service, stack.use(await Child.start("load/http.ts", z.unknown())), number);
		};
		const [one, other] = [await start(0), await start(1)];
		return new Replicas(stack.move(), one, other);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#stack[Symbol.asyncDispose]();
	}
}

/** Combines simultaneous measurements of two replicas. */
function sum([one, other]: readonly [Measurement, Measurement]): Measurement {
	const rate = one.rate + other.rate;
	return {
		rate,
		cost: (one.cost * one.rate + other.cost * other.rate) / rate,
		client: one.client + other.client,
		latency: [Math.max(one.latency[0], other.latency[0]), Math.max(one.latency[1], other.latency[1])],
	};
}

/** The driver alone, with groups of a fixed size. */
function inserting(driver: Child<unknown>, url: string, group: number): LoadTarget {
	return {
		name: "driver",
		async load({ milliseconds }) {
			const before = await processorSeconds(driver.pid);
			const plan: InsertPlan = { url, group, milliseconds };
			const { rows, seconds, latency } = await driver.ask(plan, insertResult);
			const used = (await processorSeconds(driver.pid)) - before;
			return { rate: rows / seconds, cost: (used / rows) * 1000, client: 0, latency };
		},
	};
}

/** Returns the average number of updates in the groups that were written while `run` ran. */
async function groupSize(url: string, run: () => Promise<unknown>): Promise<number> {
	const counts = async () => {
		const [row] = await sqlOn(
			url,
			`SELECT newest_update AS updates, (SELECT count(DISTINCT xmin::text) FROM conversation_updates.updates) AS groups
			FROM conversation_updates.state`,
		);
		return z.object({ updates: z.coerce.number(), groups: z.coerce.number() }).parse(row);
	};
	const before = await counts();
	await run();
	const after = await counts();
	return (after.updates - before.updates) / (after.groups - before.groups);
}

/** Returns the rate per second of transactions that take a number and commit, each in one round trip. */
async function commitRate(url: string, connections: number, milliseconds: number): Promise<number> {
	const clients = await Promise.all(Array.from({ length: connections }, () => connect(url)));
	const take = "UPDATE conversation_updates.state SET newest_update = newest_update + 1";
	const end = performance.now() + milliseconds;
	let commits = 0;
	await Promise.all(
		clients.map(async (client) => {
			while (performance.now() < end) {
				await Promise.all([client.query("BEGIN"), client.query(take), client.query("COMMIT")]);
				commits += 1;
			}
		}),
	);
	await Promise.all(clients.map((client) => client.end()));
	return commits / (milliseconds / 1000);
}

function ratiosOf(pairs: readonly (readonly [Measurement, Measurement])[]): number[] {
	return pairs.map(([before, after]) => after.rate / before.rate);
}
