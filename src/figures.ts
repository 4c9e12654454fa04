import { countGaps, countSilent, countUnheard } from "./conversations/read/count.ts";
import type { Forwarder } from "./forward/forwarder.ts";
import type { Parts } from "./make-parts.ts";
import { addFileFigures, addUsageFigures } from "./telemetry/figures.ts";
import type { Logger } from "./telemetry/log.ts";
import type { FigureName, Metrics, Sample } from "./telemetry/metrics.ts";
import type { Readiness } from "./telemetry/readiness.ts";
import type { Requests } from "./telemetry/requests.ts";
import { WORKS } from "./transports/admission.ts";
import type { RunningListener } from "./transports/connections.ts";

/** What the metrics of a service are read from, at each collection. */
interface Sources {
	readonly parts: Parts;
	readonly requests: Requests;
	readonly listeners: Readonly<Record<"http" | "grpc", Pick<RunningListener, "connections">>>;
	readonly readiness: Readiness;
	readonly forwarder: Pick<Forwarder, "figures">;
	/** Path of the database file. Undefined when the database is not a local file. */
	readonly databasePath: string | undefined;
	readonly log: Pick<Logger, "droppedLines">;
}

const LISTENERS = ["http", "grpc"] as const;
const LOGS = ["updates", "events"] as const;

/** Adds metrics of the service, its store and its watchers. A metric whose source rejects has no value in that scrape. */
export function addServiceFigures(metrics: Metrics, sources: Sources): void {
	const { parts, requests, listeners, readiness, forwarder, databasePath, log } = sources;
	const { store, admission, accessKeys, refusedPosts, reads, shares, reconciler } = parts;
	const { counts, senders } = reads.of({ owner: undefined });
	const one = (name: FigureName, read: () => number | bigint | Promise<number | bigint>): void =>
		metrics.observe(name, async () => [[Number(await read())]]);
	const each = <Item>(
		name: FigureName,
		items: () => readonly Item[] | Promise<readonly Item[]>,
		sampleOf: (item: Item) => Sample,
	): void => metrics.observe(name, async () => (await items()).map(sampleOf));

	one("ready", () => Number(readiness.ready));
	const names = () => LISTENERS;
	each("requests.active", names, (listener) => [requests.open[listener], { listener }]);
	each("connections", names, (listener) => [listeners[listener].connections(), { listener }]);
	const { recent } = reads;
	const logs = () => LOGS;
	each("watchers", logs, (log) => [recent[log].usage.followers, { log }]);
	each("watch.lag", logs, (log) => [Number(recent[log].lag), { log }]);
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
	const works = () => WORKS;
	each("admitted.requests", works, (work) => [admission.underWay(work).requests, { work }]);
	each("admitted.size", works, (work) => [admission.underWay(work).bytes, { work }]);
	one("access_keys.expiring", () => accessKeys.expiring);
	one("log.dropped_lines", () => log.droppedLines);

	const byStatus = async () => (await counts.count({ groupBy: "status" })).counts;
	each("by_status", byStatus, ({ value: status, count }) => [Number(count), { status }]);
	one("silent", () => countSilent(store));
	const gaps = async () => Object.entries(await countGaps(store));
	each("with_gaps", gaps, ([age, value]) => [value, { age }]);
	one("unheard", async () => countUnheard(store, await senders.list()));
	one("senders.silent", async () => (await senders.list()).filter(({ silent }) => silent).length);

	for (const name of ["kept", "dropped", "removed"] as const)
		one(`refused_posts.${name}`, () => refusedPosts.counts[name]);
	one("refused_posts", async () => (await store.refusedUsage()).posts);
	one("refused_posts.size", async () => (await store.refusedUsage()).bytes);

	each("budget.share", shares, ({ name: budget, owner, share }) => [share, { budget, owner }]);

	const reconciled = () => reconciler.figures;
	metrics.observe("reconcile.runs", () =>
		reconciled().flatMap(({ agentServer: agent_server, completed, incomplete }): Sample[] => [
			[completed, { agent_server, result: "complete" }],
			[incomplete, { agent_server, result: "incomplete" }],
		]),
	);
	for (const name of ["events", "records", "gone"] as const)
		each(`reconcile.${name}`, reconciled, (one) => [one[name], { agent_server: one.agentServer }]);

	const forwarded = () => forwarder.figures();
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
	if (databasePath !== undefined) addFileFigures(metrics, databasePath);
}
