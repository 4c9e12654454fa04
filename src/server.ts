import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { COMMAND } from "./access/access-keys.ts";
import { Gate, RateLimit } from "./access/gate.ts";
import { posterOf, type Scope } from "./access/keys.ts";
import { followBudgets } from "./budgets/follower.ts";
import { pausesOf } from "./budgets/pauses.ts";
import type { Config } from "./config/config.ts";
import { type Address, formatAddress } from "./config/parsers.ts";
import { pruneUntilStopped, stepsOf } from "./conversations/retention.ts";
import { ServiceError } from "./errors.ts";
import { addServiceFigures } from "./figures.ts";
import { CLOCK } from "./forward/endpoint-worker.ts";
import { Forwarder } from "./forward/forwarder.ts";
import { noticeGaps } from "./forward/notices.ts";
import { makeParts } from "./make-parts.ts";
import { MCP_HEADERS, mcpRoutes } from "./mcp/mcp-route.ts";
import { packageJson } from "./package-json.ts";
import { reconcileUntilStopped } from "./reconcile/reconciler.ts";
import { COMMAND_SERVICES } from "./rpc/command-methods.ts";
import { SERVICES } from "./rpc/services.ts";
import { indexUntilStopped } from "./search/indexer.ts";
import { postForms as postFormNames } from "./store/refused-posts.ts";
import type { Logger } from "./telemetry/log.ts";
import { followStoreHealth, Readiness } from "./telemetry/readiness.ts";
import { startTelemetry } from "./telemetry/telemetry.ts";
import { followTraces } from "./traces/otlp.ts";
import { trajectoryRoute } from "./trajectories/trajectories.ts";
import { connectHandlers } from "./transports/connect/connect-adapter.ts";
import { listenGrpc } from "./transports/grpc/grpc-listener.ts";
import { allowOrigins, observed } from "./transports/http/exchange.ts";
import { commandSocketOf, listenForCommands, listenHttp } from "./transports/http/http-listener.ts";
import { createRouter } from "./transports/http/router.ts";
import { consoleRoutes, metricsRoute, openApiRoute, probeRoutes } from "./transports/http/service-routes.ts";
import { jsonRoutes } from "./transports/reads/reads.ts";
import { HeldBatches } from "./transports/stream-messages.ts";
import { postRoutes, webhookRoutes } from "./transports/webhook/webhook.ts";

/** Folder of the built console: this file is in src/ or in dist/. */
const CONSOLE_FOLDER = fileURLToPath(new URL("../dist/console/", import.meta.url));
/** Maximum time, in milliseconds, for which a stopping service accepts connections that are on their way. */
const MAX_GRACE = 1_000;
/** Milliseconds between two checks in this time whether a client is still connected. */
const CONNECTION_CHECK_INTERVAL = 20;

/** The access keys that the first start creates. */
export interface FirstKeys {
	/** The permanent key. */
	readonly key: string;
	/** A key for the console, which can only read, and ends after a day. Undefined without a console. */
	readonly consoleKey: string | undefined;
	readonly httpAddress: Address;
}

export interface RunningService {
	readonly httpAddress: Address;
	readonly grpcAddress: Address;
	/**
	 * Reports that the service is not ready, stops accepting connections, ends streams, lets the other requests under way
	 * finish and commit, and closes the store. Connections that are still open after nine tenths of the drain time are
	 * closed.
	 */
	stop(): Promise<void>;
}

/**
 * Builds and starts the service.
 *
 * @param showKeys shows the access keys that the first start creates when no keys are configured. It is called when the
 *   start cannot fail any more, because the key cannot be shown again.
 * @param firstScopes of the keys of the first start. Default: one that manages, and one for the console that only reads
 * @throws Error when a listener or the store cannot be opened; then everything that was opened is closed
 */
export async function startService(
	config: Config,
	log: Logger,
	showKeys: (keys: FirstKeys) => void,
	{
		distribute = false,
		firstScopes,
	}: { readonly distribute?: boolean; readonly firstScopes?: readonly Scope[] | undefined } = {},
): Promise<RunningService> {
	log.emit("starting", { configuration: Object.fromEntries(config.settings.map(({ name, value }) => [name, value])) });
	await using opened = new AsyncDisposableStack();
	const { MAX_BODY_BYTES: maxBodyBytes, BASE_PATH: basePath, tls } = config;
	const telemetry = opened.use(await startTelemetry(config.otel, packageJson(), log));
	const { requests, metrics } = telemetry;
	const readiness = new Readiness((ready) => grpc.setServing(ready));
	const storeHealthy = () => readiness.passes("store");
	const parts = await makeParts(config, { log, opened, telemetry, distribute, storeHealthy });
	const { store, admission, stopping, postCounts, refusedPosts, accessKeys } = parts;
	const { ingest, eventIngest, eventPosts, indexer, reads, forwarding, reconciler, methods, format } = parts;
	// With SQLite, the first start makes one.
	const isFile = config.database.engine === "sqlite";
	if (!isFile && !accessKeys.hasValid)
		throw new Error(
			"With PostgreSQL, ACCESS_KEYS or CLIENT_CERTIFICATES must be set, to the same value for every replica, or a key must have been made with the command `keys add`",
		);
	const routesOfPosts = postRoutes(basePath);
	const postForms = new Map(postFormNames.map((form) => [routesOfPosts[form], form]));
	requests.onRefused = ({ caller, route = "", error, ...refused }) => {
		const poster = posterOf(caller);
		if (error instanceof ServiceError) postCounts.add(poster, error.kind);
		const form = postForms.get(route);
		if (form !== undefined) refusedPosts.add({ ...refused, poster, route, form, error });
	};
	const gate = new Gate(accessKeys.keyring, SERVICES, {
		certificates: config.CLIENT_CERTIFICATES,
		rateLimit: config.RATE_LIMIT_PER_KEY === undefined ? undefined : new RateLimit(config.RATE_LIMIT_PER_KEY),
		onRefused: (caller, kind) => postCounts.add(posterOf(caller), kind),
	});
	const held = new HeldBatches(admission);
	const rpc = { methods, gate, admission, held, maxBodyBytes, stopping: stopping.signal };
	const jsonReads = jsonRoutes(basePath, { methods, reads, store, format, maxBodyBytes, stream: rpc });
	const routes = [
		...probeRoutes(readiness),
		metricsRoute(() => metrics.scrape()),
		...webhookRoutes(basePath, maxBodyBytes, ingest, eventPosts),
		...jsonReads,
		trajectoryRoute(basePath, reads),
		openApiRoute(basePath),
		...(config.MCP ? mcpRoutes({ basePath, reads: jsonReads, origins: config.CORS_ORIGINS }) : []),
		...(config.CONSOLE ? await consoleRoutes(basePath, CONSOLE_FOLDER) : []),
	];

	// Before the first read. A conversation for which this fails is retried when its next events or record arrive.
	await eventIngest.applyAllUnappliedEvents().catch((error: unknown) => log.workFailed("settle", error));

	// Before the first scrape, which has the figures of all endpoints.
	await followTraces(store, config.traces?.url, Date.now());
	const forwarder = opened.use(new Forwarder(forwarding.forwarderOptions));
	parts.changed.endpoints = () => forwarder.poke();

	const router = createRouter({ routes, rpcs: connectHandlers(rpc, basePath), gate, admission });
	const answer = observed(requests, allowOrigins(config.CORS_ORIGINS, router, config.MCP ? MCP_HEADERS : []));
	const http = await listenHttp({ address: config.HTTP_ADDRESS, tls, log }, answer);
	opened.defer(() => http.kill());
	const grpc = await listenGrpc({ ...rpc, services: SERVICES, address: config.GRPC_ADDRESS, tls, requests, log });
	opened.defer(() => grpc.kill());
	opened.use(followStoreHealth(store, { onChange: (healthy) => readiness.set("store", healthy), log }));

	const databasePath = config.database.engine === "sqlite" ? config.database.path : undefined;
	addServiceFigures(metrics, { parts, requests, listeners: { http, grpc }, readiness, forwarder, databasePath, log });

	if (databasePath !== undefined) {
		const anybody = { authenticate: () => COMMAND, knows: () => true };
		const forCommands = new Gate(anybody, [...SERVICES, ...COMMAND_SERVICES]);
		const own = { ...rpc, methods: parts.commandMethods, gate: forCommands };
		const commands = observed(
			requests,
			createRouter({ ...own, routes: [trajectoryRoute("", reads)], rpcs: connectHandlers(own) }),
		);
		const socket = listenForCommands(commandSocketOf(databasePath), commands);
		// The service is of use without it, for example where the file system has no sockets.
		opened.use(await socket.catch((error: unknown) => void log.emit("commands_unreachable", {}, error)));
	}

	// At the end, because the key is shown only once, and a start that fails later would lose it.
	const isFirst = isFile && config.ACCESS_KEYS.length === 0;
	const keys = isFirst ? await accessKeys.createFirst(config.CONSOLE, firstScopes) : undefined;
	if (keys !== undefined) showKeys({ ...keys, httpAddress: http.address });
	log.emit("listening", { listener: "http", address: formatAddress(http.address) });
	log.emit("listening", { listener: "grpc", address: formatAddress(grpc.address) });

	const failedIn = (where: string) => (error: unknown) => log.workFailed(where, error);
	/** Lets work that ends with the signal end before what it uses. */
	const untilStop = (work: Promise<void>) => opened.defer(() => work);
	const retention = {
		days: config.RETENTION_DAYS,
		updatesPerConversation: config.RETENTION_UPDATES_PER_CONVERSATION,
		eventDays: config.EVENT_RETENTION_DAYS,
	};
	const steps = [(now: bigint) => refusedPosts.expire(now, retention), ...stepsOf(store, config.RETENTION_RULES)];
	untilStop(pruneUntilStopped(store, retention, stopping.signal, failedIn("retention"), undefined, steps));
	const indexing = {
		...{ store, indexer },
		isBusy: () => admission.underWay("ingest").requests > 0,
		onError: failedIn("search"),
	};
	untilStop(indexUntilStopped(indexing, stopping.signal));

	const { notices } = forwarding;
	untilStop(noticeGaps({ store, notices, clock: CLOCK, onError: failedIn("forwarding") }, stopping.signal));
	const holder = randomUUID();
	const servers = new Map(
		config.reconciled.map(({ sender, url, key }) => [sender, { url, key: key?.export().toString() }]),
	);
	const pauses = pausesOf({ store, log, servers, notices, stopping: stopping.signal });
	const comparing = { store, reads, holder, notices, pauses, clock: CLOCK, onError: failedIn("budgets") };
	untilStop(followBudgets(comparing, stopping.signal));
	for (const [sender, address] of servers) {
		reconciler.announce(address.url.host);
		const job = { reconciler, store, holder, onError: failedIn("reconcile"), stopping: stopping.signal };
		untilStop(reconcileUntilStopped(job, sender, { address, senders: [sender] }));
	}

	const running = opened.move();
	return {
		httpAddress: http.address,
		grpcAddress: grpc.address,
		stop: async () => {
			const drainTime = config.DRAIN_SECONDS * 1000;
			const until = performance.now() + 0.9 * drainTime;
			readiness.set("accepting", false);
			http.drain();
			// The grace period ends early when no client is connected.
			const graceEnd = performance.now() + Math.min(MAX_GRACE, 0.1 * drainTime);
			while (performance.now() < graceEnd && http.connections() + grpc.connections() > 0)
				await delay(CONNECTION_CHECK_INTERVAL);
			// Streams and retention do not end by themselves. All other work may finish.
			stopping.abort();
			// At the same time, so that neither listener accepts requests while the other one finishes its own.
			await Promise.all([http.stop(0.2 * drainTime, until), grpc.stop(0.2 * drainTime, until)]);
			await running.disposeAsync();
			log.sumUp();
			log.emit("stopped");
		},
	};
}
