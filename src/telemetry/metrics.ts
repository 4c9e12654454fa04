import type { Attributes, Counter, Histogram, Meter } from "@opentelemetry/api";
import { PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import type { Resource } from "@opentelemetry/resources";
import { type IMetricReader, MeterProvider, MetricReader, type ResourceMetrics } from "@opentelemetry/sdk-metrics";
import {
	METRIC_HTTP_SERVER_REQUEST_DURATION,
	METRIC_RPC_SERVER_CALL_DURATION,
} from "@opentelemetry/semantic-conventions";
import type { AnsweredGroup } from "../threads/protocol.ts";
import type { EndedRequest } from "./ended-request.ts";
import { attributesOf, isRpc } from "./request-attributes.ts";

/** What a metric is: its name and unit in OpenTelemetry's words, and one sentence about it. */
export interface MetricText {
	readonly name: string;
	readonly unit: string;
	readonly description: string;
}

/** A value of a metric that is read when metrics are collected. */
export interface Sample {
	readonly value: number;
	readonly labels?: Attributes;
}

/** Bounds of durations, in seconds. Most requests and commits take from one to twenty milliseconds. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** Bounds of sizes, in bytes. */
const BYTES = [1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216];
/** Bounds of the number of appends in a commit. */
const APPENDS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/** The metrics of the service, for Prometheus to scrape and for readers that send them elsewhere. */
export class Metrics implements AsyncDisposable {
	readonly #provider: MeterProvider;
	readonly #scraped = new ScrapedReader();
	readonly #serializer = new PrometheusSerializer(undefined, false, undefined, false, true);
	readonly #meter: Meter;
	readonly #http: Histogram;
	readonly #rpc: Histogram;
	readonly #size: Histogram;
	readonly #violations: Counter;
	readonly #commits: Histogram;
	readonly #commitSize: Histogram;

	/** @param senders send metrics elsewhere */
	constructor(resource: Resource, senders: readonly IMetricReader[]) {
		this.#provider = new MeterProvider({ resource, readers: [this.#scraped, ...senders] });
		this.#meter = this.#provider.getMeter("conversations");
		const histogram = ({ name, ...text }: MetricText, explicitBucketBoundaries: number[]): Histogram =>
			this.#meter.createHistogram(name, { ...text, advice: { explicitBucketBoundaries } });
		this.#http = histogram(
			{
				name: METRIC_HTTP_SERVER_REQUEST_DURATION,
				unit: "s",
				description: "Duration of HTTP requests that are no RPCs, from the header to the end of the answer",
			},
			SECONDS,
		);
		this.#rpc = histogram(
			{
				name: METRIC_RPC_SERVER_CALL_DURATION,
				unit: "s",
				description: "Duration of RPCs, of streams from their begin to their end",
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
				description: "Appends in a transaction: updates, and batches of events",
			},
			APPENDS,
		);
		this.#violations = this.#meter.createCounter("conversations.request.violations", {
			unit: "{violation}",
			description: "Broken rules in refused requests",
		});
	}

	/** Counts a request. */
	ended(request: EndedRequest): void {
		const attributes = attributesOf(request);
		const { target, seconds, bytes } = request;
		const rpc = isRpc(target);
		(rpc ? this.#rpc : this.#http).record(seconds, attributes);
		const { transport, route } = target;
		// Nothing is read of a request without a route.
		if (bytes !== undefined && route !== undefined) this.#size.record(bytes, { transport, route });
	}

	/** A request broke a rule of this type. */
	violated(type: string): void {
		this.#violations.add(1, { type });
	}

	/** Appends were committed together, or failed together. */
	committed({ duration, ids }: AnsweredGroup): void {
		this.#commits.record(duration / 1000);
		this.#commitSize.record(ids.length);
	}

	/** Adds a value that goes up and down, read when metrics are collected. */
	gauge(text: MetricText, read: () => Promise<readonly Sample[]> | readonly Sample[]): void {
		const { name, ...options } = text;
		this.#meter.createObservableGauge(name, options).addCallback(async (result) => {
			for (const { value, labels } of await read()) result.observe(value, labels);
		});
	}

	/** Adds a value that only grows, read when metrics are collected. */
	counter(text: MetricText, read: () => readonly Sample[]): void {
		const { name, ...options } = text;
		this.#meter.createObservableCounter(name, options).addCallback((result) => {
			for (const { value, labels } of read()) result.observe(value, labels);
		});
	}

	/** All metrics in the text format of Prometheus, 0.0.4. */
	async scrape(): Promise<string> {
		const { resourceMetrics } = await this.#scraped.collect();
		return this.#serializer.serialize(withUnits(resourceMetrics));
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#provider.shutdown();
	}
}

/** Gives metrics to who asks for them. */
class ScrapedReader extends MetricReader {
	protected override async onForceFlush(): Promise<void> {}
	protected override async onShutdown(): Promise<void> {}
}

/** What OpenTelemetry's units are called at the end of a metric's name in Prometheus. */
const UNITS: Readonly<Record<string, string>> = { s: "seconds", By: "bytes", "1": "ratio" };

/**
 * Puts units into the names, as the specification of OpenTelemetry has it for Prometheus ("Prometheus and OpenMetrics
 * Compatibility") and its collector does. The serializer of the library leaves them out.
 */
function withUnits(metrics: ResourceMetrics): ResourceMetrics {
	const scopeMetrics = metrics.scopeMetrics.map((scoped) => ({
		...scoped,
		metrics: scoped.metrics.map((metric) => {
			const { name, unit } = metric.descriptor;
			const suffix = UNITS[unit];
			const full = suffix === undefined ? name : `${name}.${suffix}`;
			// The line about the unit belongs to another format, OpenMetrics.
			return { ...metric, descriptor: { ...metric.descriptor, name: full, unit: "" } };
		}),
	}));
	return { ...metrics, scopeMetrics };
}
