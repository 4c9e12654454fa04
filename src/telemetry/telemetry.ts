import { setTimeout as delay } from "node:timers/promises";
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import { ATTR_SERVICE_NAME, ATTR_SERVICE_VERSION } from "@opentelemetry/semantic-conventions";
import type { Poster } from "../store/owners.ts";
import type { Store } from "../store/store.ts";
import type { ThreadObserver, ThreadQueue } from "../threads/worker-thread.ts";
import { addProcessFigures } from "./figures.ts";
import type { Logger } from "./log.ts";
import { Metrics } from "./metrics.ts";
import type { OtelSettings } from "./otel-settings.ts";
import { Requests } from "./requests.ts";

/** Maximum time, in milliseconds, for which a stop waits until the last metrics and spans are sent. */
const FLUSH_TIMEOUT = 2_000;

/** Metrics and traces of the service, without its log. Disposing sends pending data, within a limited time. */
export type Telemetry = Awaited<ReturnType<typeof startTelemetry>>;

/**
 * Starts telemetry. The module that sends metrics and traces is loaded only if needed.
 *
 * @param program its name and version, for receivers of metrics and spans
 */
export async function startTelemetry(
	settings: OtelSettings,
	program: { readonly name: string; readonly version: string },
	log: Logger,
) {
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
	const resource = defaultResource()
		.merge(resourceFromAttributes({ [ATTR_SERVICE_NAME]: program.name, [ATTR_SERVICE_VERSION]: program.version }))
		.merge(detectResources({ detectors: [envDetector] }));
	const otlp = settings.metrics || settings.traces ? await import("./otlp.ts") : undefined;
	const sender = settings.metrics ? otlp?.metricsSender(settings.metricInterval, log) : undefined;
	const tracing = settings.traces && otlp ? new otlp.OtlpTracing(resource, settings.sampler, log) : undefined;
	const metrics = new Metrics(resource, sender === undefined ? [] : [sender]);
	const queues = new Map<string, () => ThreadQueue>();
	const observe = (name: "size" | "age", of: (queue: ThreadQueue) => number) =>
		metrics.observe(`queue.${name}`, () => Array.from(queues, ([thread, queue]) => [of(queue()), { thread }]));
	observe("size", ({ calls }) => calls);
	observe("age", ({ age }) => age / 1000);
	const processFigures = addProcessFigures(metrics);
	const threads: ThreadObserver = {
		onThread: (name, queue) => queues.set(name, queue),
		onGroup: (group) => metrics.committed(group),
	};
	return {
		metrics,
		requests: new Requests({ log, metrics, tracing }),
		tracing,
		threads,
		[Symbol.asyncDispose]: async () => {
			processFigures[Symbol.dispose]();
			// An unreachable receiver must not prevent the stop. The log reports it.
			const sent = Promise.allSettled([tracing?.[Symbol.asyncDispose](), metrics[Symbol.asyncDispose]()]);
			await Promise.race([sent, delay(FLUSH_TIMEOUT, undefined, { ref: false })]);
		},
	};
}

/**
 * Returns a store that counts each update that it has stored, reports each post of which it has stored nothing, and adds
 * a span for the time for which a request waits for its commit.
 *
 * @param onRepeat `at` is when the post arrived, in microseconds of Unix time
 */
export function countedStore(
	store: Store,
	{ metrics, tracing }: Pick<Telemetry, "tracing"> & { readonly metrics: Pick<Metrics, "accepted"> },
	onRepeat: (poster: Poster, at: bigint) => void,
): Store {
	const committed = <Result>(append: () => Promise<Result>) => tracing?.during("commit", append) ?? append();
	return {
		...store,
		async append(update, signal) {
			// The store takes over the update.
			const { poster, isFetched, receivedAt } = update;
			const appended = await committed(() => store.append(update, signal));
			if (!appended.duplicate) metrics.accepted(appended.change);
			else if (poster !== undefined && !isFetched) onRepeat(poster, receivedAt);
			return appended;
		},
		async appendEvents(batch, signal) {
			const { poster, isFetched, receivedAt } = batch;
			const appended = await committed(() => store.appendEvents(batch, signal));
			if (appended?.updateChange !== undefined) metrics.accepted(appended.updateChange);
			if (appended?.stored === 0 && poster !== undefined && !isFetched) onRepeat(poster, receivedAt);
			return appended;
		},
	};
}
