import { stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { getHeapSpaceStatistics } from "node:v8";
import { sumOfCosts } from "../record/stats.ts";
import type { LogChange } from "../store/sequence-log.ts";
import type { Store } from "../store/store.ts";
import type { ModelUsage } from "../store/usage-report.ts";
import type { Logger } from "./log.ts";
import type { Metrics, Sample } from "./metrics.ts";
import type { Readiness } from "./readiness.ts";
import type { Requests } from "./requests.ts";

type ByListener<Value> = Readonly<Record<"http" | "grpc", Value>>;

/** Sources of the metrics, read at each collection. Those that read the store may reject. */
interface ServiceFigures {
	readonly requests: Requests;
	/** Open connections. */
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
	/** Number of stored access keys that expire within a week. */
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
	readonly forwarded: () => Promise<
		readonly (Readonly<
			Record<"lag" | "waiting" | "failing" | "delivered" | "failed" | "failedTries" | "lost", number>
		> &
			Readonly<Record<"name" | "owner" | "state", string>>)[]
	>;
	/** The parts of budgets that are spent, at most 64. */
	readonly budgets: () => Promise<readonly { readonly name: string; readonly owner: string; readonly share: number }[]>;
	/** Numbers of conversations and senders. */
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
	const { requests, connections, readiness, watched, counts, refused, store } = figures;
	const gauge = metrics.gauge.bind(metrics);
	const counter = metrics.counter.bind(metrics);
	const ofListeners = (value: (listener: (typeof LISTENERS)[number]) => number) => () =>
		LISTENERS.map((listener) => ({ value: value(listener), labels: { listener } }));
	const ofLogs = (value: (log: (typeof LOGS)[number]) => number) => () =>
		LOGS.map((log) => ({ value: value(log), labels: { log } }));
	gauge("conversations.ready", "", "1 when /readyz answers 200, else 0", () => [{ value: readiness.ready ? 1 : 0 }]);
	gauge(
		"conversations.requests.active",
		"{request}",
		"Requests in progress, including streams",
		ofListeners((listener) => requests.open[listener]),
	);
	gauge(
		"conversations.connections",
		"{connection}",
		"Open connections",
		ofListeners((listener) => connections[listener]()),
	);
	gauge(
		"conversations.watchers",
		"{watcher}",
		"Streams that follow a log",
		ofLogs((log) => watched[log].usage.followers),
	);
	gauge(
		"conversations.watch.lag",
		"{sequence}",
		"Sequence numbers by which the slowest watcher is behind the newest entry",
		ofLogs((log) => Number(watched[log].lag)),
	);
	addNewestSequences(metrics, store);
	gauge(
		"conversations.view.lag",
		"s",
		"Age of the oldest entry of a log that a view has not followed; 0 when there is none",
		async () =>
			(await store.listViews()).map(({ name, since }) => ({
				value: since === undefined ? 0 : Math.max(0, Date.now() / 1e3 - Number(since) / 1e6),
				labels: { view: name },
			})),
	);
	gauge(
		"conversations.admitted.requests",
		"{request}",
		"Admitted requests whose response has not been sent completely",
		() => figures.admitted().map(({ work, requests }) => ({ value: requests, labels: { work } })),
	);
	gauge("conversations.admitted.size", "By", "Bytes of the request bodies and responses of admitted requests", () =>
		figures.admitted().map(({ work, bytes }) => ({ value: bytes, labels: { work } })),
	);
	gauge(
		"conversations.access_keys.expiring",
		"{key}",
		"Stored access keys that expire within a week, except that of the first start for the console",
		() => [{ value: figures.keysExpiring() }],
	);
	counter("conversations.log.dropped_lines", "{line}", "Log lines that could not be written", () => [
		{ value: figures.log.droppedLines },
	]);

	gauge("conversations.by_status", "{conversation}", "Conversations with a status", async () =>
		(await counts.byStatus()).map(({ value, count }) => ({ value: Number(count), labels: { status: value } })),
	);
	gauge(
		"conversations.silent",
		"{conversation}",
		"Conversations that run or wait, and have had no activity for ten minutes",
		async () => [{ value: Number(await counts.silent()) }],
	);
	gauge(
		"conversations.with_gaps",
		"{conversation}",
		"Conversations of which something is missing: for two minutes (lasting), or for a shorter time (recent)",
		async () => Object.entries(await counts.gaps()).map(([age, value]) => ({ value, labels: { age } })),
	);
	gauge(
		"conversations.unheard",
		"{conversation}",
		"Running conversations without activity for ten minutes in which their sender has posted others",
		async () => [{ value: Number(await counts.unheard()) }],
	);
	gauge(
		"conversations.senders.silent",
		"{sender}",
		"Senders with running conversations that have been silent for longer than they usually are",
		async () => [{ value: await counts.silentSenders() }],
	);

	for (const [name, description] of [
		["kept", "Refused posts that were kept"],
		["dropped", "Refused posts that were not kept, because too many arrived at a time or the store failed"],
		["removed", "Refused posts that were removed because of their age or to make room for others"],
	] as const)
		counter(`conversations.refused_posts.${name}`, "{post}", description, () => [{ value: refused.counts()[name] }]);
	gauge("conversations.refused_posts", "{post}", "Refused posts in the store", async () => [
		{ value: (await refused.usage()).posts },
	]);
	gauge("conversations.refused_posts.size", "By", "Room that refused posts take", async () => [
		{ value: (await refused.usage()).bytes },
	]);

	gauge(
		"conversations.budget.share",
		"",
		"Part of a budget that is spent in its present period; 1 is all of it",
		async () =>
			(await figures.budgets()).map(({ name, owner, share }) => ({ value: share, labels: { budget: name, owner } })),
	);
	addReconcileFigures(metrics, figures);
	addForwardFigures(metrics, figures);
	addUsageFigures(metrics, store);
	if (figures.databasePath !== undefined) addFileFigures(metrics, figures.databasePath);
}

function addReconcileFigures(metrics: Metrics, { reconciled }: ServiceFigures): void {
	type Server = ReturnType<typeof reconciled>[number];
	const samples = (value: (server: Server) => number) => () =>
		reconciled().map((server) => ({ value: value(server), labels: { agent_server: server.agentServer } }));
	metrics.counter("conversations.reconcile.runs", "{run}", "Comparisons with agent servers, by result", () =>
		reconciled().flatMap(({ agentServer, completed, incomplete }) => [
			{ value: completed, labels: { agent_server: agentServer, result: "complete" } },
			{ value: incomplete, labels: { agent_server: agentServer, result: "incomplete" } },
		]),
	);
	metrics.counter(
		"conversations.reconcile.events",
		"{event}",
		"Events that never arrived and were fetched from agent servers",
		samples(({ events }) => events),
	);
	metrics.counter(
		"conversations.reconcile.records",
		"{record}",
		"Records that were fetched from agent servers, because they never arrived or were newer",
		samples(({ records }) => records),
	);
	metrics.gauge(
		"conversations.reconcile.gone",
		"{conversation}",
		"Stored conversations that agent servers no longer have, without a report of their deletion",
		samples(({ gone }) => gone),
	);
}

function addForwardFigures(metrics: Metrics, { forwarded }: ServiceFigures): void {
	type Endpoint = Awaited<ReturnType<typeof forwarded>>[number];
	const samples = (value: (endpoint: Endpoint) => number) => async () =>
		(await forwarded()).map((one) => ({ value: value(one), labels: { endpoint: one.name, owner: one.owner } }));
	metrics.counter(
		"conversations.endpoint.deliveries",
		"{delivery}",
		"Deliveries that ended, by result: delivered, or failed after the last try",
		async () =>
			(await forwarded()).flatMap(({ name, owner, delivered, failed }) =>
				Object.entries({ delivered, failed }).map(([result, value]) => ({
					value,
					labels: { endpoint: name, owner, result },
				})),
			),
	);
	metrics.counter(
		"conversations.endpoint.failed_tries",
		"{try}",
		"Tries of deliveries that failed",
		samples(({ failedTries }) => failedTries),
	);
	metrics.counter(
		"conversations.endpoint.lost",
		"{update}",
		"Updates that were removed before they were sent to an endpoint",
		samples(({ lost }) => lost),
	);
	metrics.gauge(
		"conversations.endpoint.lag",
		"{sequence}",
		"Sequence numbers by which the position of an endpoint is behind the newest update",
		samples(({ lag }) => lag),
	);
	metrics.gauge(
		"conversations.endpoint.waiting",
		"{delivery}",
		"Deliveries that wait",
		samples(({ waiting }) => waiting),
	);
	metrics.gauge(
		"conversations.endpoint.failing",
		"s",
		"Time since the first failure after the last success of an endpoint; 0 without one",
		samples(({ failing }) => failing),
	);
	metrics.gauge(
		"conversations.endpoint.disabled",
		"",
		"1 when an endpoint is disabled, else 0",
		samples(({ state }) => (state === "disabled" ? 1 : 0)),
	);
}

function addNewestSequences(metrics: Metrics, store: ServiceFigures["store"]): void {
	const newest = { updates: 0n, events: 0n };
	const known = LOGS.map(async (log) => {
		const advance = (sequence: bigint, change: LogChange = "added"): void => {
			if (change === "lost" || sequence > newest[log]) newest[log] = sequence;
		};
		store[log].subscribe(advance);
		advance((await store[log].range()).newest);
	});
	// A store that cannot be read has no newest entry yet. Its health check reports that.
	const settled = Promise.allSettled(known);
	metrics.gauge(
		"conversations.newest_sequence",
		"{sequence}",
		"Sequence number of the newest entry of a log",
		async () => {
			await settled;
			return LOGS.map((log) => ({ value: Number(newest[log]), labels: { log } }));
		},
	);
}

/** Maximum number of models that have metrics of their own. Further ones are counted together, as {@link OTHER}. */
const MAX_MODELS = 20;
const OTHER = "other";
/** Maximum number of characters of a label. */
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
		name: string,
		unit: string,
		description: string,
		valuesOf: (usage: ModelUsage) => Sample[],
		sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0),
	): void => {
		const counted = new Map<string, Sample>();
		metrics.counter(name, unit, description, async () => {
			const all = await store.listModelUsage().catch((): ModelUsage[] => []);
			const samples = all
				.toSorted((a, b) => b.cost - a.cost)
				.flatMap((usage) => {
					const model = labelOf(usage.model);
					return valuesOf(usage).map(({ value, labels }) => ({ value, labels: { ...labels, model } }));
				});
			for (const [key, same] of Map.groupBy(samples, ({ labels }) => JSON.stringify(labels))) {
				const value = Math.max(sumOf(same.map((one) => one.value)), counted.get(key)?.value ?? 0);
				counted.set(key, { value, labels: same[0]?.labels ?? {} });
			}
			return [...counted.values()];
		});
	};
	const ofCost = "Cost of calls of models, in the currency of the records";
	add("conversations.usage.cost", "", ofCost, ({ cost }) => [{ value: cost }], sumOfCosts);
	add("conversations.usage.tokens", "{token}", "Tokens of calls of models, by kind", ({ tokens }) =>
		Object.entries(tokens).map(([kind, value]) => ({ value, labels: { kind } })),
	);
	add("conversations.usage.calls", "{call}", "Calls of models", ({ calls }) => [{ value: calls }]);
}

/** Adds metrics of the database files and the disk that holds them. A file that does not exist has no size. */
function addFileFigures(metrics: Metrics, databasePath: string): void {
	const sizeOf = async (path: string, file: string): Promise<Sample[]> => {
		const found = await stat(path).catch(() => undefined);
		return found === undefined ? [] : [{ value: found.size, labels: { file } }];
	};
	metrics.gauge("conversations.database.size", "By", "Size of a file of the database", async () => [
		...(await sizeOf(databasePath, "database")),
		...(await sizeOf(`${databasePath}-wal`, "write-ahead-log")),
	]);
	const disk = (space: "bavail" | "blocks") => async (): Promise<Sample[]> => {
		const found = await statfs(dirname(databasePath));
		return [{ value: found[space] * found.bsize }];
	};
	metrics.gauge("conversations.disk.available", "By", "Free space on the disk of the database", disk("bavail"));
	metrics.gauge("conversations.disk.size", "By", "Size of the disk of the database", disk("blocks"));
}

/** Milliseconds between two samples of the event loop's delay. */
const RESOLUTION = 20;

/** Adds metrics of the process and its main thread, under OpenTelemetry's names where it defines them. */
export function addProcessFigures(metrics: Metrics): Disposable {
	metrics.counter("process.cpu.time", "s", "Processor time of all threads of the process", () => {
		const { user, system } = process.cpuUsage();
		return Object.entries({ user, system }).map(([mode, time]) => ({
			value: time / 1e6,
			labels: { "cpu.mode": mode },
		}));
	});
	const ofMemory = "Resident memory of the process";
	metrics.gauge("process.memory.usage", "By", ofMemory, () => [{ value: process.memoryUsage.rss() }]);
	metrics.gauge("process.uptime", "s", "Time since the process started", () => [{ value: process.uptime() }]);
	metrics.gauge("v8js.memory.heap.used", "By", "Heap of the main thread that is in use", () =>
		getHeapSpaceStatistics().map(({ space_name, space_used_size }) => ({
			value: space_used_size,
			labels: { "v8js.heap.space.name": space_name },
		})),
	);

	const delay = monitorEventLoopDelay({ resolution: RESOLUTION });
	delay.enable();
	// Every collection reads all three metrics. The last one resets the histogram.
	const ofDelay = (name: string, what: string, read: () => number): void => {
		const description = `${what} of the main thread's event loop since metrics were last collected`;
		// A sample is the time since the previous one, so that the interval has to be subtracted.
		metrics.gauge(`nodejs.eventloop.delay.${name}`, "s", description, () => [
			{ value: Math.max(0, read() / 1e9 - RESOLUTION / 1000) },
		]);
	};
	ofDelay("p50", "Median delay", () => delay.percentile(50));
	ofDelay("p99", "99th percentile of the delay", () => delay.percentile(99));
	ofDelay("max", "Longest delay", () => {
		const longest = delay.max;
		delay.reset();
		return longest;
	});
	let last = performance.eventLoopUtilization();
	metrics.gauge(
		"nodejs.eventloop.utilization",
		"1",
		"Share of the time since metrics were last collected in which the main thread's event loop was busy",
		() => {
			const now = performance.eventLoopUtilization();
			const { utilization } = performance.eventLoopUtilization(now, last);
			last = now;
			return [{ value: utilization }];
		},
	);
	return { [Symbol.dispose]: () => delay.disable() };
}
