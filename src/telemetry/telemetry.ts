import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { getHeapSpaceStatistics } from "node:v8";
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import { type IMetricReader, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { ATTR_SERVICE_NAME, ATTR_SERVICE_VERSION } from "@opentelemetry/semantic-conventions";
import type { ThreadObserver, ThreadQueue } from "../threads/worker-thread.ts";
import { logExportFailures } from "./exports.ts";
import type { Logger } from "./log.ts";
import { Metrics } from "./metrics.ts";
import type { OtelSettings } from "./otel-settings.ts";
import type { OtlpTracing } from "./otlp-tracing.ts";
import { Requests } from "./requests.ts";

/** Maximum time, in milliseconds, for which a stop waits until the last metrics and spans are sent. */
const FLUSH_TIMEOUT = 2_000;

/** Name and version of the program, for receivers of metrics and spans. */
export interface ProgramName {
	readonly name: string;
	readonly version: string;
}

/** Metrics and traces of the service, without its log. Disposing sends pending data, within a limited time. */
export interface Telemetry extends AsyncDisposable {
	readonly metrics: Metrics;
	readonly requests: Requests;
	/** Observes all threads. */
	readonly threads: ThreadObserver;
}

/** Starts telemetry. The modules that send metrics and traces are loaded only if needed. */
export async function startTelemetry(settings: OtelSettings, program: ProgramName, log: Logger): Promise<Telemetry> {
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
	const resource = defaultResource()
		.merge(resourceFromAttributes({ [ATTR_SERVICE_NAME]: program.name, [ATTR_SERVICE_VERSION]: program.version }))
		.merge(detectResources({ detectors: [envDetector] }));
	const senders: IMetricReader[] = [];
	if (settings.metrics) {
		const { OTLPMetricExporter } = await import("@opentelemetry/exporter-metrics-otlp-proto");
		const exporter = logExportFailures(new OTLPMetricExporter(), "metrics", log);
		const exportIntervalMillis = settings.metricInterval;
		const exportTimeoutMillis = Math.min(exportIntervalMillis, 30_000);
		senders.push(new PeriodicExportingMetricReader({ exporter, exportIntervalMillis, exportTimeoutMillis }));
	}
	const metrics = new Metrics(resource, senders);
	let tracing: OtlpTracing | undefined;
	if (settings.traces) {
		const { OtlpTracing } = await import("./otlp-tracing.ts");
		tracing = new OtlpTracing(resource, settings.sampler, log);
	}
	const threads = observeThreads(metrics, tracing);
	const processFigures = addProcessFigures(metrics);
	return {
		metrics,
		requests: new Requests({ log, metrics, tracing }),
		threads,
		[Symbol.asyncDispose]: async () => {
			processFigures[Symbol.dispose]();
			// An unreachable receiver must not prevent the stop. The log reports it.
			const sent = Promise.allSettled([tracing?.[Symbol.asyncDispose](), metrics[Symbol.asyncDispose]()]);
			await Promise.race([sent, delay(FLUSH_TIMEOUT, undefined, { ref: false })]);
		},
	};
}

/** The thread whose groups are transactions. */
const COMMITTING_THREAD = "writer";

function observeThreads(metrics: Metrics, tracing: OtlpTracing | undefined): ThreadObserver {
	const queues = new Map<string, () => ThreadQueue>();
	const read = (figure: keyof ThreadQueue, scale: number) => () =>
		[...queues].map(([thread, queue]) => ({ value: queue()[figure] * scale, labels: { thread } }));
	metrics.gauge(
		{ name: "conversations.queue.size", unit: "{call}", description: "Calls to a thread that have no result yet" },
		read("calls", 1),
	);
	metrics.gauge(
		{
			name: "conversations.queue.age",
			unit: "s",
			description: "Age of the oldest call to a thread that has no result yet",
		},
		read("age", 1 / 1000),
	);
	return {
		onThread: (name, queue) => queues.set(name, queue),
		onCall: (thread, call) => tracing?.beginCall(thread, call),
		onGroup: (thread, group) => {
			if (thread === COMMITTING_THREAD) metrics.committed(group);
		},
	};
}

/** Milliseconds between two samples of the event loop's delay. */
const RESOLUTION = 20;

/** Adds metrics of the process and its main thread, under OpenTelemetry's names where it defines them. */
export function addProcessFigures(metrics: Metrics): Disposable {
	metrics.counter(
		{ name: "process.cpu.time", unit: "s", description: "Processor time of all threads of the process" },
		() => {
			const { user, system } = process.cpuUsage();
			return [
				{ value: user / 1e6, labels: { "cpu.mode": "user" } },
				{ value: system / 1e6, labels: { "cpu.mode": "system" } },
			];
		},
	);
	metrics.gauge({ name: "process.memory.usage", unit: "By", description: "Resident memory of the process" }, () => [
		{ value: process.memoryUsage.rss() },
	]);
	metrics.gauge({ name: "process.uptime", unit: "s", description: "Time since the process started" }, () => [
		{ value: process.uptime() },
	]);
	metrics.gauge(
		{ name: "v8js.memory.heap.used", unit: "By", description: "Heap of the main thread that is in use" },
		() =>
			getHeapSpaceStatistics().map(({ space_name, space_used_size }) => ({
				value: space_used_size,
				labels: { "v8js.heap.space.name": space_name },
			})),
	);

	const delay = monitorEventLoopDelay({ resolution: RESOLUTION });
	delay.enable();
	// A sample is the time since the previous one, so that the interval has to be subtracted.
	const seconds = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e9 - RESOLUTION / 1000);
	// Every collection reads all three metrics. The last one resets the histogram.
	const text = (name: string, what: string) => ({
		name: `nodejs.eventloop.delay.${name}`,
		unit: "s",
		description: `${what} of the main thread's event loop since metrics were last collected`,
	});
	metrics.gauge(text("p50", "Median delay"), () => [{ value: seconds(delay.percentile(50)) }]);
	metrics.gauge(text("p99", "99th percentile of the delay"), () => [{ value: seconds(delay.percentile(99)) }]);
	metrics.gauge(text("max", "Longest delay"), () => {
		const value = seconds(delay.max);
		delay.reset();
		return [{ value }];
	});
	let last = performance.eventLoopUtilization();
	metrics.gauge(
		{
			name: "nodejs.eventloop.utilization",
			unit: "1",
			description: "Share of the time since metrics were last collected in which the main thread's event loop was busy",
		},
		() => {
			const now = performance.eventLoopUtilization();
			const { utilization } = performance.eventLoopUtilization(now, last);
			last = now;
			return [{ value: utilization }];
		},
	);
	return { [Symbol.dispose]: () => delay.disable() };
}
