import type { Attributes, AttributeValue, Counter, Histogram, Meter } from "@opentelemetry/api";
import { PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import type { Resource } from "@opentelemetry/resources";
import { type IMetricReader, MeterProvider, MetricReader, type ResourceMetrics } from "@opentelemetry/sdk-metrics";
import {
	ATTR_ERROR_TYPE,
	METRIC_HTTP_SERVER_REQUEST_DURATION,
	METRIC_RPC_SERVER_CALL_DURATION,
} from "@opentelemetry/semantic-conventions";
import { UpdateChange, UpdateChangeSchema } from "../../gen/conversations/v1/update_pb.js";
import type { AnsweredGroup } from "../threads/protocol.ts";
import { attributesOf, type EndedRequest, isRpc } from "./ended-request.ts";
import type { Transport } from "./log-fields.ts";

/** Name, unit and description of a metric, as OpenTelemetry defines them. */
export interface MetricText {
	readonly name: string;
	readonly unit: string;
	readonly description: string;
}

/** A value that is read when metrics are collected. */
export interface Sample {
	readonly value: number;
	readonly labels?: Attributes;
}

/** Bucket boundaries of durations, in seconds. Most requests and commits take from one to twenty milliseconds. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** Bucket boundaries of sizes, in bytes. */
const BYTES = [1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216];
/** Bucket boundaries of the number of appends in a commit. */
const APPENDS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

const TRANSPORTS: readonly Transport[] = ["http", "connect", "grpc-web", "grpc"];
/** Kinds of requests: HTTP POST other than RPCs, RPCs, and other HTTP. */
const REQUESTS = ["post", "rpc", "other"] as const;
/** Outcomes of requests; `failed` are those with another error than the next two. */
const OUTCOMES = ["success", "failed", "unavailable", "canceled"] as const;

function requestOf(isRpc: boolean, method: string | undefined): (typeof REQUESTS)[number] {
	if (isRpc) return "rpc";
	return method === "POST" ? "post" : "other";
}

/** @param error type of the error; undefined for none */
function outcomeOf(error: AttributeValue | undefined): (typeof OUTCOMES)[number] {
	if (error === undefined) return "success";
	return error === "unavailable" || error === "canceled" ? error : "failed";
}

function nameOf(change: UpdateChange): string {
	return UpdateChange[change].toLowerCase();
}

/** The service's metrics. Prometheus scrapes them, and other readers can send them elsewhere. */
export class Metrics implements AsyncDisposable {
	readonly #provider: MeterProvider;
	readonly #scraped = new ScrapedReader();
	readonly #serializer = new PrometheusSerializer(undefined, false, undefined, false, true);
	readonly #meter: Meter;
	readonly #http: Histogram;
	readonly #rpc: Histogram;
	readonly #size: Histogram;
	readonly #violations: Counter;
	readonly #unauthenticated: Counter;
	/** Number of requests that ended, by kind and outcome. Counted here, because that takes less than a call of the SDK. */
	readonly #ended = new Map(REQUESTS.map((request) => [request, new Map(OUTCOMES.map((outcome) => [outcome, 0]))]));
	readonly #commits: Histogram;
	readonly #commitSize: Histogram;

	readonly #updates: Counter;

	/** @param senders readers that send metrics elsewhere */
	constructor(resource: Resource, senders: readonly IMetricReader[]) {
		this.#provider = new MeterProvider({ resource, readers: [this.#scraped, ...senders] });
		this.#meter = this.#provider.getMeter("conversations");
		const histogram = ({ name, ...text }: MetricText, explicitBucketBoundaries: number[]): Histogram =>
			this.#meter.createHistogram(name, { ...text, advice: { explicitBucketBoundaries } });
		this.#http = histogram(
			{
				name: METRIC_HTTP_SERVER_REQUEST_DURATION,
				unit: "s",
				description: "Duration of HTTP requests other than RPCs, from the request header to the end of the response",
			},
			SECONDS,
		);
		this.#rpc = histogram(
			{
				name: METRIC_RPC_SERVER_CALL_DURATION,
				unit: "s",
				description: "Duration of RPCs; of a stream from its start to its end",
			},
			SECONDS,
		);
		this.#size = histogram(
			{
				name: "conversations.request.size",
				unit: "By",
				description: "Size of bodies and messages that were read, after decompression",
			},
			BYTES,
		);
		this.#commits = histogram(
			{ name: "conversations.commit.duration", unit: "s", description: "Duration of transactions with appends" },
			SECONDS,
		);
		this.#commitSize = histogram(
			{
				name: "conversations.commit.size",
				unit: "{append}",
				description: "Number of appends in a transaction: updates and batches of events",
			},
			APPENDS,
		);
		this.#updates = this.#meter.createCounter("conversations.updates.accepted", {
			unit: "{update}",
			description: "Updates that were stored, by their change",
		});
		this.#violations = this.#meter.createCounter("conversations.request.violations", {
			unit: "{violation}",
			description: "Broken rules in refused requests",
		});
		this.#unauthenticated = this.#meter.createCounter("conversations.requests.unauthenticated", {
			unit: "{request}",
			description: "Requests without a valid access key or client certificate",
		});
		const ended = {
			name: "conversations.requests.ended",
			unit: "{request}",
			description: "Requests that ended, by their kind and outcome",
		};
		this.counter(ended, () =>
			[...this.#ended].flatMap(([request, byOutcome]) =>
				[...byOutcome].map(([outcome, value]) => ({ value, labels: { request, outcome } })),
			),
		);
		this.#startAtZero();
	}

	/** Adds the series of counters whose labels are known. Prometheus sees no increase in the first value of a series. */
	#startAtZero(): void {
		for (const transport of TRANSPORTS) this.#unauthenticated.add(0, { transport });
		for (const { number } of UpdateChangeSchema.values)
			if (number !== UpdateChange.UNSPECIFIED && number !== UpdateChange.ERASED)
				this.#updates.add(0, { change: nameOf(number) });
	}

	/** Records a completed request. */
	ended(request: EndedRequest): void {
		const attributes = attributesOf(request);
		const { target, seconds, bytes } = request;
		const rpc = isRpc(target);
		(rpc ? this.#rpc : this.#http).record(seconds, attributes);
		const { transport, route, method } = target;
		const byOutcome = this.#ended.get(requestOf(rpc, method));
		const outcome = outcomeOf(attributes[ATTR_ERROR_TYPE]);
		byOutcome?.set(outcome, (byOutcome.get(outcome) ?? 0) + 1);
		// The body of a request without a route is never read.
		if (bytes !== undefined && route !== undefined) this.#size.record(bytes, { transport, route });
	}

	/** Counts a violation of the rule of this type. */
	violated(type: string): void {
		this.#violations.add(1, { type });
	}

	/** Counts a request without a valid access key. */
	unauthenticated(transport: Transport): void {
		this.#unauthenticated.add(1, { transport });
	}

	/** Records a group of appends that were committed together or failed together. */
	committed({ duration, ids }: AnsweredGroup): void {
		this.#commits.record(duration / 1000);
		this.#commitSize.record(ids.length);
	}

	/** Counts an update that was stored. */
	accepted(change: UpdateChange): void {
		this.#updates.add(1, { change: nameOf(change) });
	}

	/** Adds a metric whose value can go up and down. `read` is called at each collection. */
	gauge(text: MetricText, read: () => Promise<readonly Sample[]> | readonly Sample[]): void {
		const { name, ...options } = text;
		this.#meter.createObservableGauge(name, options).addCallback(async (result) => {
			for (const { value, labels } of await read()) result.observe(value, labels);
		});
	}

	/** Adds a metric whose value only grows. `read` is called at each collection. */
	counter(text: MetricText, read: () => Promise<readonly Sample[]> | readonly Sample[]): void {
		const { name, ...options } = text;
		this.#meter.createObservableCounter(name, options).addCallback(async (result) => {
			for (const { value, labels } of await read()) result.observe(value, labels);
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

/** Collects metrics on demand. */
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
