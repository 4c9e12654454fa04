import { stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { getHeapSpaceStatistics } from "node:v8";
import { sumOfCosts } from "../record/stats.ts";
import type { Store } from "../store/store.ts";
import type { ModelUsage } from "../store/usage-report.ts";
import type { Logger } from "./log.ts";
import type { FigureName, Metrics, Sample } from "./metrics.ts";
import type { Readiness } from "./readiness.ts";
import type { Requests } from "./requests.ts";

type ByListener<Value> = Readonly<Record<"http" | "grpc", Value>>;

type EndpointFigures = Readonly<Record<"name" | "owner" | "state", string>> &
	Readonly<Record<"lag" | "waiting" | "failing" | "delivered" | "failed" | "failedTries" | "lost", number>>;

/** Sources of the metrics, read at each collection. Those that read the store may reject. */
interface ServiceFigures {
	readonly requests: Requests;
	readonly connections: ByListener<() => number>;
	readonly readiness: Readiness;
	readonly store: Pick<Store, "updates" | "events" | "listModelUsage" | "listViews">;
	/** Watchers, and the sequence numbers by which the slowest one is behind the newest entry. */
	readonly watched: Readonly<
		Record<"updates" | "events", { readonly usage: { readonly followers: number }; readonly lag: bigint }>
	>;
	/** Path of the database file. Undefined when the database is not a local file. */
	readonly databasePath: string | undefined;
	/** Admitted requests whose responses have not been sent, by kind, and the bytes of their bodies and responses. */
	readonly admitted: () => readonly { readonly work: string; readonly requests: number; readonly bytes: number }[];
	readonly keysExpiring: () => number;
	/** Refused posts since the start, and the room that those of the store take. */
	readonly refused: {
		readonly counts: () => Readonly<Record<"kept" | "dropped" | "removed", number>>;
		readonly usage: () => Promise<{ readonly posts: number; readonly bytes: number }>;
	};
	/** What was fetched since the start from each agent server, which is named by its host and port. */
	readonly reconciled: () => readonly (Readonly<
		Record<"completed" | "incomplete" | "events" | "records" | "gone", number>
	> & { readonly agentServer: string })[];
	/** Endpoints, and what was delivered to them since the start. `failing` is in seconds, `lag` in sequences. */
	readonly forwarded: () => Promise<readonly EndpointFigures[]>;
	/** The parts of budgets that are spent, at most 64. */
	readonly budgets: () => Promise<readonly { readonly name: string; readonly owner: string; readonly share: number }[]>;
	readonly counts: {
		/** Conversations by the JSON name of their status. */
		readonly byStatus: () => Promise<readonly { readonly value: string; readonly count: bigint }[]>;
		readonly silent: () => Promise<bigint>;
		readonly gaps: () => Promise<Readonly<Record<"lasting" | "recent", number>>>;
		readonly unheard: () => Promise<bigint>;
		readonly silentSenders: () => Promise<number>;
	};
	readonly log: Pick<Logger, "droppedLines">;
}

const LISTENERS = ["http", "grpc"] as const;
const LOGS = ["updates", "events"] as const;

/** Adds metrics of the service, its store and its watchers. A metric whose source rejects has no value in that scrape. */
export function addServiceFigures(metrics: Metrics, figures: ServiceFigures): void {
	const { requests, connections, readiness, watched, counts, refused, store, reconciled, forwarded } = figures;
	const one = (name: FigureName, read: () => number | bigint | Promise<number | bigint>): void =>
		metrics.observe(name, async () => [[Number(await read())]]);
	const each = <Item>(
		name: FigureName,
		items: () => readonly Item[] | Promise<readonly Item[]>,
		sampleOf: (item: Item) => Sample,
	): void => metrics.observe(name, async () => (await items()).map(sampleOf));

	one("ready", () => Number(readiness.ready));
	const listeners = () => LISTENERS;
	each("requests.active", listeners, (listener) => [requests.open[listener], { listener }]);
	each("connections", listeners, (listener) => [connections[listener](), { listener }]);
	const logs = () => LOGS;
	each("watchers", logs, (log) => [watched[log].usage.followers, { log }]);
	each("watch.lag", logs, (log) => [Number(watched[log].lag), { log }]);
	const ranges = () => Promise.all(LOGS.map(async (log) => ({ log, ...(await store[log].range()) })));
	each("newest_sequence", ranges, ({ log, newest }) => [Number(newest), { log }]);
	each(
		"view.lag",
		() => store.listViews(),
		({ name: view, since }) => [
			since === undefined ? 0 : Math.max(0, Date.now() / 1e3 - Number(since) / 1e6),
			{ view },
		],
	);
	const { admitted } = figures;
	each("admitted.requests", admitted, ({ work, requests }) => [requests, { work }]);
	each("admitted.size", admitted, ({ work, bytes }) => [bytes, { work }]);
	one("access_keys.expiring", figures.keysExpiring);
	one("log.dropped_lines", () => figures.log.droppedLines);

	each("by_status", counts.byStatus, ({ value: status, count }) => [Number(count), { status }]);
	one("silent", counts.silent);
	const gaps = async () => Object.entries(await counts.gaps());
	each("with_gaps", gaps, ([age, value]) => [value, { age }]);
	one("unheard", counts.unheard);
	one("senders.silent", counts.silentSenders);

	for (const name of ["kept", "dropped", "removed"] as const)
		one(`refused_posts.${name}`, () => refused.counts()[name]);
	one("refused_posts", async () => (await refused.usage()).posts);
	one("refused_posts.size", async () => (await refused.usage()).bytes);

	each("budget.share", figures.budgets, ({ name: budget, owner, share }) => [share, { budget, owner }]);

	metrics.observe("reconcile.runs", () =>
		reconciled().flatMap(({ agentServer: agent_server, completed, incomplete }): Sample[] => [
			[completed, { agent_server, result: "complete" }],
			[incomplete, { agent_server, result: "incomplete" }],
		]),
	);
	for (const name of ["events", "records", "gone"] as const)
		each(`reconcile.${name}`, reconciled, (one) => [one[name], { agent_server: one.agentServer }]);

	metrics.observe("endpoint.deliveries", async () =>
		(await forwarded()).flatMap(({ name: endpoint, owner, delivered, failed }) =>
			Object.entries({ delivered, failed }).map(([result, value]): Sample => [value, { endpoint, owner, result }]),
		),
	);
	const ofEndpoints = (name: FigureName, value: "failedTries" | "lost" | "lag" | "waiting" | "failing") =>
		each(name, forwarded, (one) => [one[value], { endpoint: one.name, owner: one.owner }]);
	ofEndpoints("endpoint.failed_tries", "failedTries");
	for (const value of ["lost", "lag", "waiting", "failing"] as const) ofEndpoints(`endpoint.${value}`, value);
	each("endpoint.disabled", forwarded, ({ name: endpoint, owner, state }) => [
		Number(state === "disabled"),
		{ endpoint, owner },
	]);

	addUsageFigures(metrics, store);
	if (figures.databasePath !== undefined) addFileFigures(metrics, figures.databasePath);
}

/** Maximum number of models that have metrics of their own. Further ones are counted together, as {@link OTHER}. */
const MAX_MODELS = 20;
const OTHER = "other";
const MAX_LABEL = 80;

/**
 * Adds counters of usage by model. They are the sums of the database, also of the time before this process. When a
 * correction takes usage back, a counter keeps its value until the sum has passed it.
 */
export function addUsageFigures(metrics: Metrics, store: Pick<Store, "listModelUsage">): void {
	const named = new Set<string>();
	const labelOf = (model: string): string => {
		const label = model.slice(0, MAX_LABEL).toWellFormed();
		if (named.size < MAX_MODELS) named.add(label);
		return named.has(label) ? label : OTHER;
	};
	const add = (
		name: "cost" | "tokens" | "calls",
		valuesOf: (usage: ModelUsage) => Sample[],
		sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0),
	): void => {
		const counted = new Map<string, Sample>();
		metrics.observe(`usage.${name}`, async () => {
			const all = await store.listModelUsage().catch((): ModelUsage[] => []);
			const samples = all
				.toSorted((a, b) => b.cost - a.cost)
				.flatMap((usage) => {
					const model = labelOf(usage.model);
					return valuesOf(usage).map(([value, labels]): Sample => [value, { ...labels, model }]);
				});
			for (const [key, same] of Map.groupBy(samples, ([, labels]) => JSON.stringify(labels))) {
				const value = Math.max(sumOf(same.map(([one]) => one)), counted.get(key)?.[0] ?? 0);
				counted.set(key, [value, same[0]?.[1] ?? {}]);
			}
			return [...counted.values()];
		});
	};
	add("cost", ({ cost }) => [[cost]], sumOfCosts);
	add("tokens", ({ tokens }) => Object.entries(tokens).map(([kind, value]) => [value, { kind }]));
	add("calls", ({ calls }) => [[calls]]);
}

/** Adds metrics of the database files and the disk that holds them. A file that does not exist has no size. */
function addFileFigures(metrics: Metrics, databasePath: string): void {
	const sizeOf = async (path: string, file: string): Promise<Sample[]> => {
		const found = await stat(path).catch(() => undefined);
		return found === undefined ? [] : [[found.size, { file }]];
	};
	metrics.observe("database.size", async () => [
		...(await sizeOf(databasePath, "database")),
		...(await sizeOf(`${databasePath}-wal`, "write-ahead-log")),
	]);
	const disk = (space: "bavail" | "blocks") => async (): Promise<Sample[]> => {
		const found = await statfs(dirname(databasePath));
		return [[found[space] * found.bsize]];
	};
	metrics.observe("disk.available", disk("bavail"));
	metrics.observe("disk.size", disk("blocks"));
}

/** Milliseconds between two samples of the event loop's delay. */
const RESOLUTION = 20;

export function addProcessFigures(metrics: Metrics): Disposable {
	metrics.observe("process.cpu.time", () => {
		const { user, system } = process.cpuUsage();
		return Object.entries({ user, system }).map(([mode, time]) => [time / 1e6, { "cpu.mode": mode }]);
	});
	metrics.observe("process.memory.usage", () => [[process.memoryUsage.rss()]]);
	metrics.observe("process.uptime", () => [[process.uptime()]]);
	metrics.observe("v8js.memory.heap.used", () =>
		getHeapSpaceStatistics().map(({ space_name, space_used_size }) => [
			space_used_size,
			{ "v8js.heap.space.name": space_name },
		]),
	);

	const delay = monitorEventLoopDelay({ resolution: RESOLUTION });
	delay.enable();
	// A sample is the time since the previous one, so that the interval has to be subtracted.
	const seconds = (nanoseconds: number): Sample[] => [[Math.max(0, nanoseconds / 1e9 - RESOLUTION / 1000)]];
	// Every collection reads all three metrics. The last one resets the histogram.
	metrics.observe("nodejs.eventloop.delay.p50", () => seconds(delay.percentile(50)));
	metrics.observe("nodejs.eventloop.delay.p99", () => seconds(delay.percentile(99)));
	metrics.observe("nodejs.eventloop.delay.max", () => {
		const longest = seconds(delay.max);
		delay.reset();
		return longest;
	});
	let last = performance.eventLoopUtilization();
	metrics.observe("nodejs.eventloop.utilization", () => {
		const now = performance.eventLoopUtilization();
		const { utilization } = performance.eventLoopUtilization(now, last);
		last = now;
		return [[utilization]];
	});
	return { [Symbol.dispose]: () => delay.disable() };
}
