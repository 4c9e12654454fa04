import { stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import type { LogChange } from "../store/sequence-log.ts";
import type { Store } from "../store/store.ts";
import type { ModelUsage } from "../store/usage-report.ts";
import type { Logger } from "./log.ts";
import type { Metrics, MetricText, Sample } from "./metrics.ts";
import type { Readiness } from "./readiness.ts";
import type { Requests } from "./requests.ts";

/** The watchers of a log. */
export interface WatchedLog {
	readonly usage: { readonly followers: number };
	/** Sequence numbers by which the slowest watcher is behind the newest entry. */
	readonly lag: bigint;
}

/** The admitted requests of one kind. */
export interface AdmittedWork {
	readonly work: string;
	readonly requests: number;
	readonly bytes: number;
}

/** What was fetched from an agent server. */
export interface ReconciledServer {
	/** Its host and port. */
	readonly agentServer: string;
	/** Runs over all of its conversations, and runs that ended early. */
	readonly completed: number;
	readonly incomplete: number;
	readonly events: number;
	readonly records: number;
	/** Conversations that it no longer had at the last complete run. */
	readonly gone: number;
}

/** An endpoint, and what was delivered to it since the start. */
export interface ForwardedEndpoint {
	readonly name: string;
	/** Empty for none. */
	readonly owner: string;
	readonly state: string;
	/** Sequences by which its position is behind the newest update. */
	readonly lag: number;
	readonly waiting: number;
	/** Seconds since the first failure after the last success; 0 without one. */
	readonly failing: number;
	readonly delivered: number;
	readonly failed: number;
	readonly failedTries: number;
	/** Updates that were removed before they were sent, also before the start. */
	readonly lost: number;
}

/** Sources of the metrics, read at each collection. */
export interface ServiceFigures {
	readonly requests: Requests;
	/** Open connections, by listener. */
	readonly connections: Readonly<Record<"http" | "grpc", () => number>>;
	readonly readiness: Readiness;
	readonly store: Pick<Store, "updates" | "events" | "listModelUsage" | "listViews">;
	readonly watched: Readonly<Record<"updates" | "events", WatchedLog>>;
	/** Path of the database file. Undefined when the database is not a local file. */
	readonly databasePath: string | undefined;
	/** Admitted requests whose responses have not been sent, by kind, and the bytes of their bodies and responses. */
	readonly admitted: () => readonly AdmittedWork[];
	/** Number of stored access keys that expire within a week. */
	readonly keysExpiring: () => number;
	/** Refused posts since the start, and the room that those of the store take. */
	readonly refused: RefusedFigures;
	/** What was fetched from agent servers since the start, by agent server. */
	readonly reconciled: () => readonly ReconciledServer[];
	readonly forwarded: () => Promise<readonly ForwardedEndpoint[]>;
	/** The parts of budgets that are spent, at most 64. Rejects when the store cannot be read. */
	readonly budgets: () => Promise<readonly { readonly name: string; readonly owner: string; readonly share: number }[]>;
	/** Numbers of conversations and senders, read from the store. */
	readonly counts: ConversationFigures;
	readonly log: Pick<Logger, "droppedLines">;
}

/** Numbers of refused posts. */
export interface RefusedFigures {
	readonly counts: () => { readonly kept: number; readonly dropped: number; readonly removed: number };
	/** Rejects when the store cannot be read. */
	readonly usage: () => Promise<{ readonly posts: number; readonly bytes: number }>;
}

/** Numbers of conversations and senders. They reject when the store cannot be read. */
export interface ConversationFigures {
	/** Number of conversations by the JSON name of their status. */
	readonly byStatus: () => Promise<readonly { readonly value: string; readonly count: bigint }[]>;
	/** Number of conversations that run or wait, and have been silent for ten minutes. */
	readonly silent: () => Promise<bigint>;
	/** Numbers of conversations with gaps: with one that has lasted for minutes, and the others. */
	readonly gaps: () => Promise<{ readonly lasting: number; readonly recent: number }>;
	/** Number of conversations that run, and have been silent for ten minutes in which their sender has posted. */
	readonly unheard: () => Promise<bigint>;
	/** Number of senders that have been silent for longer than they usually are. */
	readonly silentSenders: () => Promise<number>;
}

const LISTENERS = ["http", "grpc"] as const;
const LOGS = ["updates", "events"] as const;

/** Adds metrics of the service, its store and its watchers. */
export function addServiceFigures(metrics: Metrics, figures: ServiceFigures): void {
	const { requests, connections, readiness, watched, keysExpiring, log } = figures;
	metrics.gauge({ name: "conversations.ready", unit: "", description: "1 when /readyz answers 200, else 0" }, () => [
		{ value: readiness.ready ? 1 : 0 },
	]);
	metrics.gauge(
		{
			name: "conversations.requests.active",
			unit: "{request}",
			description: "Requests in progress, including streams",
		},
		() => LISTENERS.map((listener) => ({ value: requests.open[listener], labels: { listener } })),
	);
	metrics.gauge({ name: "conversations.connections", unit: "{connection}", description: "Open connections" }, () =>
		LISTENERS.map((listener) => ({ value: connections[listener](), labels: { listener } })),
	);
	metrics.gauge({ name: "conversations.watchers", unit: "{watcher}", description: "Streams that follow a log" }, () =>
		LOGS.map((log) => ({ value: watched[log].usage.followers, labels: { log } })),
	);
	metrics.gauge(
		{
			name: "conversations.watch.lag",
			unit: "{sequence}",
			description: "Sequence numbers by which the slowest watcher is behind the newest entry",
		},
		() => LOGS.map((log) => ({ value: Number(watched[log].lag), labels: { log } })),
	);
	addReconcileFigures(metrics, figures);
	addForwardFigures(metrics, figures);
	metrics.gauge(
		{
			name: "conversations.budget.share",
			unit: "",
			description: "Part of a budget that is spent in its present period; 1 is all of it",
		},
		orNothing(async () =>
			(await figures.budgets()).map(({ name, owner, share }) => ({ value: share, labels: { budget: name, owner } })),
		),
	);
	addWorkFigures(metrics, figures);
	addStoreFigures(metrics, figures);
	addViewFigures(metrics, figures);
	addRefusedFigures(metrics, figures.refused);
	addConversationFigures(metrics, figures.counts);
	addUsageFigures(metrics, figures.store);
	if (figures.databasePath !== undefined) addFileFigures(metrics, figures.databasePath);
	metrics.gauge(
		{
			name: "conversations.access_keys.expiring",
			unit: "{key}",
			description: "Stored access keys that expire within a week, except that of the first start for the console",
		},
		() => [{ value: keysExpiring() }],
	);
	metrics.counter(
		{ name: "conversations.log.dropped_lines", unit: "{line}", description: "Log lines that could not be written" },
		() => [{ value: log.droppedLines }],
	);
}

function addReconcileFigures(metrics: Metrics, { reconciled }: ServiceFigures): void {
	const samples = (value: (server: ReconciledServer) => number) => () =>
		reconciled().map((server) => ({ value: value(server), labels: { agent_server: server.agentServer } }));
	metrics.counter(
		{ name: "conversations.reconcile.runs", unit: "{run}", description: "Comparisons with agent servers, by result" },
		() =>
			reconciled().flatMap(({ agentServer, completed, incomplete }) => [
				{ value: completed, labels: { agent_server: agentServer, result: "complete" } },
				{ value: incomplete, labels: { agent_server: agentServer, result: "incomplete" } },
			]),
	);
	metrics.counter(
		{
			name: "conversations.reconcile.events",
			unit: "{event}",
			description: "Events that never arrived and were fetched from agent servers",
		},
		samples(({ events }) => events),
	);
	metrics.counter(
		{
			name: "conversations.reconcile.records",
			unit: "{record}",
			description: "Records that were fetched from agent servers, because they never arrived or were newer",
		},
		samples(({ records }) => records),
	);
	metrics.gauge(
		{
			name: "conversations.reconcile.gone",
			unit: "{conversation}",
			description: "Stored conversations that agent servers no longer have, without a report of their deletion",
		},
		samples(({ gone }) => gone),
	);
}

function addForwardFigures(metrics: Metrics, { forwarded }: ServiceFigures): void {
	const samples = (values: (endpoint: ForwardedEndpoint) => readonly Sample[]) => async () =>
		(await forwarded()).flatMap((one) =>
			values(one).map(({ value, labels }) => ({ value, labels: { endpoint: one.name, owner: one.owner, ...labels } })),
		);
	metrics.counter(
		{
			name: "conversations.endpoint.deliveries",
			unit: "{delivery}",
			description: "Deliveries that ended, by result: delivered, or failed after the last try",
		},
		samples(({ delivered, failed }) => [
			{ value: delivered, labels: { result: "delivered" } },
			{ value: failed, labels: { result: "failed" } },
		]),
	);
	metrics.counter(
		{ name: "conversations.endpoint.failed_tries", unit: "{try}", description: "Tries of deliveries that failed" },
		samples(({ failedTries }) => [{ value: failedTries }]),
	);
	metrics.counter(
		{
			name: "conversations.endpoint.lost",
			unit: "{update}",
			description: "Updates that were removed before they were sent to an endpoint",
		},
		samples(({ lost }) => [{ value: lost }]),
	);
	metrics.gauge(
		{
			name: "conversations.endpoint.lag",
			unit: "{sequence}",
			description: "Sequence numbers by which the position of an endpoint is behind the newest update",
		},
		samples(({ lag }) => [{ value: lag }]),
	);
	metrics.gauge(
		{ name: "conversations.endpoint.waiting", unit: "{delivery}", description: "Deliveries that wait" },
		samples(({ waiting }) => [{ value: waiting }]),
	);
	metrics.gauge(
		{
			name: "conversations.endpoint.failing",
			unit: "s",
			description: "Time since the first failure after the last success of an endpoint; 0 without one",
		},
		samples(({ failing }) => [{ value: failing }]),
	);
	metrics.gauge(
		{ name: "conversations.endpoint.disabled", unit: "", description: "1 when an endpoint is disabled, else 0" },
		samples(({ state }) => [{ value: state === "disabled" ? 1 : 0 }]),
	);
}

function addWorkFigures(metrics: Metrics, { admitted }: ServiceFigures): void {
	metrics.gauge(
		{
			name: "conversations.admitted.requests",
			unit: "{request}",
			description: "Admitted requests whose response has not been sent completely",
		},
		() => admitted().map(({ work, requests }) => ({ value: requests, labels: { work } })),
	);
	metrics.gauge(
		{
			name: "conversations.admitted.size",
			unit: "By",
			description: "Bytes of the request bodies and responses of admitted requests",
		},
		() => admitted().map(({ work, bytes }) => ({ value: bytes, labels: { work } })),
	);
}

function addStoreFigures(metrics: Metrics, { store }: ServiceFigures): void {
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
		{
			name: "conversations.newest_sequence",
			unit: "{sequence}",
			description: "Sequence number of the newest entry of a log",
		},
		async () => {
			await settled;
			return LOGS.map((log) => ({ value: Number(newest[log]), labels: { log } }));
		},
	);
}

function addViewFigures(metrics: Metrics, { store }: ServiceFigures): void {
	metrics.gauge(
		{
			name: "conversations.view.lag",
			unit: "s",
			description: "Age of the oldest entry of a log that a view has not followed; 0 when there is none",
		},
		orNothing(async () =>
			(await store.listViews()).map(({ name, since }) => ({
				value: since === undefined ? 0 : Math.max(0, Date.now() / 1e3 - Number(since) / 1e6),
				labels: { view: name },
			})),
		),
	);
}

function addRefusedFigures(metrics: Metrics, { counts, usage }: RefusedFigures): void {
	for (const [name, description] of [
		["kept", "Refused posts that were kept"],
		["dropped", "Refused posts that were not kept, because too many arrived at a time or the store failed"],
		["removed", "Refused posts that were removed because of their age or to make room for others"],
	] as const)
		metrics.counter({ name: `conversations.refused_posts.${name}`, unit: "{post}", description }, () => [
			{ value: counts()[name] },
		]);
	metrics.gauge(
		{ name: "conversations.refused_posts", unit: "{post}", description: "Refused posts in the store" },
		orNothing(async () => [{ value: (await usage()).posts }]),
	);
	metrics.gauge(
		{ name: "conversations.refused_posts.size", unit: "By", description: "Room that refused posts take" },
		orNothing(async () => [{ value: (await usage()).bytes }]),
	);
}

/** Returns no samples when the store cannot be read, so that a scrape shows the other metrics. */
function orNothing(read: () => Promise<Sample[]>): () => Promise<Sample[]> {
	return () => read().catch((): Sample[] => []);
}

function addConversationFigures(metrics: Metrics, figures: ConversationFigures): void {
	const { byStatus, silent, silentSenders, gaps, unheard } = figures;
	metrics.gauge(
		{ name: "conversations.by_status", unit: "{conversation}", description: "Conversations with a status" },
		orNothing(async () =>
			(await byStatus()).map(({ value, count }) => ({ value: Number(count), labels: { status: value } })),
		),
	);
	metrics.gauge(
		{
			name: "conversations.silent",
			unit: "{conversation}",
			description: "Conversations that run or wait, and have had no activity for ten minutes",
		},
		orNothing(async () => [{ value: Number(await silent()) }]),
	);
	metrics.gauge(
		{
			name: "conversations.with_gaps",
			unit: "{conversation}",
			description:
				"Conversations of which something is missing: for two minutes (lasting), or for a shorter time (recent)",
		},
		orNothing(async () => Object.entries(await gaps()).map(([age, value]) => ({ value, labels: { age } }))),
	);
	metrics.gauge(
		{
			name: "conversations.unheard",
			unit: "{conversation}",
			description: "Running conversations without activity for ten minutes in which their sender has posted others",
		},
		orNothing(async () => [{ value: Number(await unheard()) }]),
	);
	metrics.gauge(
		{
			name: "conversations.senders.silent",
			unit: "{sender}",
			description: "Senders with running conversations that have been silent for longer than they usually are",
		},
		orNothing(async () => [{ value: await silentSenders() }]),
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
function addUsageFigures(metrics: Metrics, store: Pick<Store, "listModelUsage">): void {
	const named = new Set<string>();
	const labelOf = (model: string): string => {
		const label = model.slice(0, MAX_LABEL).toWellFormed();
		if (named.size < MAX_MODELS) named.add(label);
		return named.has(label) ? label : OTHER;
	};
	const add = (text: MetricText, valuesOf: (usage: ModelUsage) => readonly Sample[]): void => {
		const counted = new Map<string, Sample>();
		metrics.counter(text, async () => {
			const all = await store.listModelUsage().catch((): ModelUsage[] => []);
			const sums = new Map<string, Sample>();
			for (const usage of all.toSorted((a, b) => b.cost - a.cost))
				for (const { value, labels } of valuesOf(usage)) {
					const full = { ...labels, model: labelOf(usage.model) };
					const key = JSON.stringify(full);
					sums.set(key, { value: (sums.get(key)?.value ?? 0) + value, labels: full });
				}
			for (const [key, { value, labels }] of sums)
				counted.set(key, { value: Math.max(value, counted.get(key)?.value ?? 0), labels: labels ?? {} });
			return [...counted.values()];
		});
	};
	add(
		{
			name: "conversations.usage.cost",
			unit: "",
			description: "Cost of calls of models, in the currency of the records",
		},
		({ cost }) => [{ value: cost }],
	);
	add(
		{ name: "conversations.usage.tokens", unit: "{token}", description: "Tokens of calls of models, by kind" },
		({ tokens }) => Object.entries(tokens).map(([kind, value]) => ({ value, labels: { kind } })),
	);
	add({ name: "conversations.usage.calls", unit: "{call}", description: "Calls of models" }, ({ calls }) => [
		{ value: calls },
	]);
}

/** Adds metrics of the database files and the disk that holds them. */
function addFileFigures(metrics: Metrics, databasePath: string): void {
	metrics.gauge(
		{ name: "conversations.database.size", unit: "By", description: "Size of a file of the database" },
		async () => [
			...(await sizeOf(databasePath, "database")),
			...(await sizeOf(`${databasePath}-wal`, "write-ahead-log")),
		],
	);
	const disk = async (space: "bavail" | "blocks"): Promise<Sample[]> => {
		const found = await statfs(dirname(databasePath)).catch(() => undefined);
		return found === undefined ? [] : [{ value: found[space] * found.bsize }];
	};
	metrics.gauge(
		{ name: "conversations.disk.available", unit: "By", description: "Free space on the disk of the database" },
		() => disk("bavail"),
	);
	metrics.gauge({ name: "conversations.disk.size", unit: "By", description: "Size of the disk of the database" }, () =>
		disk("blocks"),
	);
}

/** Returns the size of a file, or nothing if the file does not exist. */
async function sizeOf(path: string, file: string): Promise<Sample[]> {
	const found = await stat(path).catch(() => undefined);
	return found === undefined ? [] : [{ value: found.size, labels: { file } }];
}
