import type { Attributes, Meter } from "@opentelemetry/api";
import { PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import type { Resource } from "@opentelemetry/resources";
import { type IMetricReader, MeterProvider, MetricReader, type ResourceMetrics } from "@opentelemetry/sdk-metrics";
import {
	ATTR_ERROR_TYPE,
	ATTR_HTTP_REQUEST_METHOD,
	ATTR_HTTP_RESPONSE_STATUS_CODE,
	ATTR_HTTP_ROUTE,
	ATTR_RPC_METHOD,
	ATTR_RPC_SYSTEM_NAME,
	METRIC_HTTP_SERVER_REQUEST_DURATION,
	METRIC_RPC_SERVER_CALL_DURATION,
} from "@opentelemetry/semantic-conventions";
import { UpdateChange, UpdateChangeSchema } from "../../gen/conversations/v1/update_pb.js";
import type { AnsweredGroup } from "../threads/protocol.ts";

/**
 * Units and descriptions of the metrics whose values are read when metrics are collected and can go up and down. Names of
 * the service's own metrics are without their beginning, `conversations.`; others are OpenTelemetry's where it defines them.
 */
const GAUGES = {
	"requests.active": ["{request}", "Requests in progress, including streams"],
	connections: ["{connection}", "Open connections"],
	"admitted.requests": ["{request}", "Admitted requests whose response has not been sent completely"],
	"admitted.size": ["By", "Bytes of the request bodies and responses of admitted requests"],
	ready: ["", "1 when /readyz answers 200, else 0"],
	newest_sequence: ["{sequence}", "Sequence number of the newest entry of a log"],
	watchers: ["{watcher}", "Streams that follow a log"],
	"watch.lag": ["{sequence}", "Sequence numbers by which the slowest watcher is behind the newest entry"],
	"view.lag": ["s", "Age of the oldest entry of a log that a view has not followed; 0 when there is none"],
	"queue.size": ["{call}", "Calls to a thread that have no result yet"],
	"queue.age": ["s", "Age of the oldest call to a thread that has no result yet"],
	"access_keys.expiring": ["{key}", "Stored keys that expire within a week, except the first one for the console"],
	by_status: ["{conversation}", "Conversations with a status"],
	silent: ["{conversation}", "Conversations that run or wait, and have had no activity for ten minutes"],
	with_gaps: ["{conversation}", "Conversations that miss something: for two minutes (lasting), or for less (recent)"],
	unheard: ["{conversation}", "Running conversations without activity for ten minutes whose sender posted others"],
	"senders.silent": ["{sender}", "Senders with running conversations that are silent for longer than usual"],
	refused_posts: ["{post}", "Refused posts in the store"],
	"refused_posts.size": ["By", "Room that refused posts take"],
	"budget.share": ["", "Part of a budget that is spent in its present period; 1 is all of it"],
	"reconcile.gone": ["{conversation}", "Conversations that agent servers lost without a report of their deletion"],
	"endpoint.lag": ["{sequence}", "Sequence numbers by which the position of an endpoint is behind the newest update"],
	"endpoint.waiting": ["{delivery}", "Deliveries that wait"],
	"endpoint.failing": ["s", "Time since the first failure after the last success of an endpoint; 0 without one"],
	"endpoint.disabled": ["", "1 when an endpoint is disabled, else 0"],
	"database.size": ["By", "Size of a file of the database"],
	"disk.available": ["By", "Free space on the disk of the database"],
	"disk.size": ["By", "Size of the disk of the database"],
	"process.memory.usage": ["By", "Resident memory of the process"],
	"process.uptime": ["s", "Time since the process started"],
	"v8js.memory.heap.used": ["By", "Heap of the main thread that is in use"],
	"nodejs.eventloop.delay.p50": ["s", "Median delay of the main thread's event loop since metrics were last collected"],
	"nodejs.eventloop.delay.p99": ["s", "99th percentile of the main event loop's delay since the last collection"],
	"nodejs.eventloop.delay.max": ["s", "Longest delay of the main event loop since the last collection"],
	"nodejs.eventloop.utilization": ["1", "Share of time in which the main event loop was busy since the last one"],
} as const;
/** As {@link GAUGES}, of values that only grow. */
const COUNTERS = {
	"requests.ended": ["{request}", "Requests that ended, by their kind and outcome"],
	"updates.accepted": ["{update}", "Updates that were stored, by their change"],
	"log.dropped_lines": ["{line}", "Log lines that could not be written"],
	"refused_posts.kept": ["{post}", "Refused posts that were kept"],
	"refused_posts.dropped": ["{post}", "Refused posts that were not kept: too many at a time, or the store failed"],
	"refused_posts.removed": ["{post}", "Refused posts that were removed because of their age or for others"],
	"reconcile.runs": ["{run}", "Comparisons with agent servers, by result"],
	"reconcile.events": ["{event}", "Events that never arrived and were fetched from agent servers"],
	"reconcile.records": ["{record}", "Records that never arrived or were newer, fetched from agent servers"],
	"endpoint.deliveries": ["{delivery}", "Deliveries that ended, by result: delivered, or failed after the last try"],
	"endpoint.failed_tries": ["{try}", "Tries of deliveries that failed"],
	"endpoint.lost": ["{update}", "Updates that were removed before they were sent to an endpoint"],
	"usage.cost": ["", "Cost of calls of models, in the currency of the records"],
	"usage.tokens": ["{token}", "Tokens of calls of models, by kind"],
	"usage.calls": ["{call}", "Calls of models"],
	"process.cpu.time": ["s", "Processor time of all threads of the process"],
} as const;

export type FigureName = keyof typeof GAUGES | keyof typeof COUNTERS;

export type Sample = readonly [value: number, labels?: Attributes];

/** Bucket boundaries of durations, in seconds. Most requests and commits take from one to twenty milliseconds. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const BYTES = [1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216];
const APPENDS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/** Kinds of requests: HTTP POST other than RPCs, RPCs, and other HTTP. */
const REQUESTS = ["post", "rpc", "other"] as const;
/** Outcomes of requests; `failed` are those with another error than the next two. */
const OUTCOMES = ["success", "failed", "unavailable", "canceled"] as const;

function nameOf(change: UpdateChange): string {
	return UpdateChange[change].toLowerCase();
}

/**
 * The service's metrics, as OpenTelemetry defines them: names, units and descriptions. Prometheus scrapes them, and other
 * readers can send them elsewhere.
 */
export class Metrics implements AsyncDisposable {
	readonly #provider: MeterProvider;
	readonly #scraped = new ScrapedReader();
	readonly #serializer = new PrometheusSerializer(undefined, false, undefined, false, true);
	readonly #meter: Meter;
	readonly #recorded: ReturnType<typeof instrumentsOf>;
	/** Number of requests that ended, by kind and outcome. Counted here, because that takes less than a call of the SDK. */
	readonly #ended = REQUESTS.map((request) => ({
		request,
		counts: { success: 0, failed: 0, unavailable: 0, canceled: 0 },
	}));
	/** Number of updates that were stored, by their change: counted here for the same reason. */
	readonly #accepted = new Map(
		UpdateChangeSchema.values
			.filter(({ number }) => number !== UpdateChange.UNSPECIFIED && number !== UpdateChange.ERASED)
			.map(({ number }) => [number, 0]),
	);

	/** @param senders readers that send metrics elsewhere */
	constructor(resource: Resource, senders: readonly IMetricReader[]) {
		this.#provider = new MeterProvider({ resource, readers: [this.#scraped, ...senders] });
		this.#meter = this.#provider.getMeter("conversations");
		this.#recorded = instrumentsOf(this.#meter);
		this.observe("requests.ended", () =>
			this.#ended.flatMap(({ request, counts }) =>
				OUTCOMES.map((outcome): Sample => [counts[outcome], { request, outcome }]),
			),
		);
		this.observe("updates.accepted", () =>
			[...this.#accepted].map(([change, count]): Sample => [count, { change: nameOf(change) }]),
		);
		// Prometheus sees no increase in the first value of a series.
		for (const transport of transports) this.#recorded.unauthenticated.add(0, { transport });
	}

	ended(request: EndedRequest): void {
		const attributes = attributesOf(request);
		const { transport, route, method } = request;
		const isRpc = transport !== "http";
		(isRpc ? this.#recorded.rpc : this.#recorded.http).record(request.seconds, attributes);
		const kind = isRpc ? "rpc" : method === "POST" ? "post" : "other";
		const error = attributes[ATTR_ERROR_TYPE];
		const outcome = error === undefined ? "success" : (OUTCOMES.find((one) => one === error) ?? "failed");
		for (const { request, counts } of this.#ended) if (request === kind) counts[outcome] += 1;
		// The body of a request without a route is never read.
		if (request.bytes !== undefined && route !== undefined)
			this.#recorded.size.record(request.bytes, { transport, route });
	}

	violated(type: string): void {
		this.#recorded.violations.add(1, { type });
	}

	unauthenticated(transport: Transport): void {
		this.#recorded.unauthenticated.add(1, { transport });
	}

	/** Records a group of appends that were committed together or failed together. */
	committed({ duration, size }: AnsweredGroup): void {
		this.#recorded.commits.record(duration / 1000);
		this.#recorded.commitSize.record(size);
	}

	accepted(change: UpdateChange): void {
		this.#accepted.set(change, (this.#accepted.get(change) ?? 0) + 1);
	}

	/** Adds a gauge or a counter whose values are read at each collection. It has none when `read` rejects. */
	observe(name: FigureName, read: () => Promise<readonly Sample[]> | readonly Sample[]): void {
		const fullName = /^(?:process|v8js|nodejs)\./.test(name) ? name : `conversations.${name}`;
		const [unit, description] = { ...GAUGES, ...COUNTERS }[name];
		const metric =
			name in COUNTERS
				? this.#meter.createObservableCounter(fullName, { unit, description })
				: this.#meter.createObservableGauge(fullName, { unit, description });
		metric.addCallback(async (result) => {
			for (const [value, labels] of await read()) result.observe(value, labels);
		});
	}

	/** Returns all metrics in Prometheus's text format 0.0.4. */
	async scrape(): Promise<string> {
		const { resourceMetrics } = await this.#scraped.collect();
		return this.#serializer.serialize(withUnits(resourceMetrics));
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#provider.shutdown();
	}
}

function instrumentsOf(meter: Meter) {
	const histogram = (name: string, unit: string, description: string, explicitBucketBoundaries: number[]) =>
		meter.createHistogram(name, { unit, description, advice: { explicitBucketBoundaries } });
	const counter = (name: string, unit: string, description: string) => meter.createCounter(name, { unit, description });
	const ofHttp = "Duration of HTTP requests other than RPCs, from the request header to the end of the response";
	const ofRpc = "Duration of RPCs; of a stream from its start to its end";
	const ofSize = "Size of bodies and messages that were read, after decompression";
	const ofCommit = "Number of appends in a transaction: updates and batches of events";
	const ofKeys = "Requests without a valid access key or client certificate";
	return {
		http: histogram(METRIC_HTTP_SERVER_REQUEST_DURATION, "s", ofHttp, SECONDS),
		rpc: histogram(METRIC_RPC_SERVER_CALL_DURATION, "s", ofRpc, SECONDS),
		size: histogram("conversations.request.size", "By", ofSize, BYTES),
		commits: histogram("conversations.commit.duration", "s", "Duration of transactions with appends", SECONDS),
		commitSize: histogram("conversations.commit.size", "{append}", ofCommit, APPENDS),
		violations: counter("conversations.request.violations", "{violation}", "Broken rules in refused requests"),
		unauthenticated: counter("conversations.requests.unauthenticated", "{request}", ofKeys),
	};
}

class ScrapedReader extends MetricReader {
	protected override async onForceFlush(): Promise<void> {}
	protected override async onShutdown(): Promise<void> {}
}

/** Suffixes of metric names in Prometheus, by OpenTelemetry unit. */
const UNITS: Readonly<Record<string, string>> = { s: "seconds", By: "bytes", "1": "ratio" };

/**
 * Appends units to metric names, as OpenTelemetry's specification ("Prometheus and OpenMetrics Compatibility") and its
 * collector do. The library's serializer does not.
 */
function withUnits(metrics: ResourceMetrics): ResourceMetrics {
	const scopeMetrics = metrics.scopeMetrics.map((scoped) => ({
		...scoped,
		metrics: scoped.metrics.map((metric) => {
			const { name, unit } = metric.descriptor;
			const suffix = UNITS[unit];
			const full = suffix === undefined ? name : `${name}.${suffix}`;
			// An empty unit suppresses the UNIT line, which belongs to another format, OpenMetrics.
			return { ...metric, descriptor: { ...metric.descriptor, name: full, unit: "" } };
		}),
	}));
	return { ...metrics, scopeMetrics };
}

export const transports = ["http", "connect", "grpc-web", "grpc"] as const;
export type Transport = (typeof transports)[number];

/** The route or RPC that a request calls. */
export interface RequestTarget {
	readonly transport: Transport;
	/** HTTP method of a request that is not an RPC. A client can choose any text here. */
	readonly method?: string | undefined;
	/** Path of the request, without its query. A client can choose any text here. */
	readonly path: string;
	/**
	 * Path of the route with its parameters as placeholders, or path of the RPC. Undefined if no such route or RPC
	 * exists.
	 */
	readonly route?: string | undefined;
}

/** A completed request. `failure` has few possible values, so that it can become a metric label. */
export interface EndedRequest extends RequestTarget {
	/** HTTP status of the response. Undefined for RPCs, and when no response was sent. */
	readonly status: number | undefined;
	/** Kind of the {@link ServiceError}, `unexpected`, or `canceled` if the client canceled. Undefined for success. */
	readonly failure: string | undefined;
	readonly seconds: number;
	/** Bytes of the body or message after decompression. Undefined when it was not read completely. */
	readonly bytes: number | undefined;
}

/** Value for an unknown method in HTTP and RPC (OpenTelemetry semantic conventions). */
const OTHER = "_OTHER";

/** HTTP methods that may become a label (RFC 9110, section 9; RFC 5789). A client can send any other word. */
const METHODS: ReadonlySet<string> = new Set("CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE".split(" "));

const SYSTEMS = { connect: "connectrpc", "grpc-web": "grpc_web", grpc: "grpc" } as const;

/** Returns the labels of a request. Each has few possible values, whatever the client sent. */
export function attributesOf({ transport, method = "", route, status, failure }: EndedRequest): Attributes {
	// A response, such as that of a probe, may report an error although the request itself did not fail.
	const error = failure ?? (status !== undefined && status >= 500 ? String(status) : undefined);
	const attributes: Attributes = {};
	if (transport === "http") {
		attributes[ATTR_HTTP_REQUEST_METHOD] = METHODS.has(method) ? method : OTHER;
		if (route !== undefined) attributes[ATTR_HTTP_ROUTE] = route;
		if (status !== undefined) attributes[ATTR_HTTP_RESPONSE_STATUS_CODE] = status;
	} else {
		attributes[ATTR_RPC_SYSTEM_NAME] = SYSTEMS[transport];
		attributes[ATTR_RPC_METHOD] = rpcNameOf(route);
	}
	if (error !== undefined) attributes[ATTR_ERROR_TYPE] = error;
	return attributes;
}

/** Returns the name of a request's span. */
export function spanNameOf({ transport, method = "", route }: RequestTarget): string {
	if (transport !== "http") return rpcNameOf(route);
	const known = METHODS.has(method) ? method : "HTTP";
	return route === undefined ? known : `${known} ${route}`;
}

function rpcNameOf(route: string | undefined): string {
	return route?.slice(1) ?? OTHER;
}
