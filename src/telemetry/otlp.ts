import { AsyncLocalStorage } from "node:async_hooks";
import {
	type Context,
	ROOT_CONTEXT,
	type Span,
	SpanKind,
	SpanStatusCode,
	type Tracer,
	trace,
} from "@opentelemetry/api";
import { type ExportResult, ExportResultCode, W3CTraceContextPropagator } from "@opentelemetry/core";
import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-proto";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import type { Resource } from "@opentelemetry/resources";
import { type IMetricReader, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import {
	BatchSpanProcessor,
	ParentBasedSampler,
	type Sampler,
	TraceIdRatioBasedSampler,
	TracerProvider,
} from "@opentelemetry/sdk-trace";
import { ATTR_ERROR_TYPE } from "@opentelemetry/semantic-conventions";
import { ServiceError } from "../errors.ts";
import type { EventLog } from "./log.ts";
import { attributesOf, type EndedRequest, spanNameOf } from "./metrics.ts";
import type { SamplerSetting } from "./otel-settings.ts";

/** Sends metrics and spans to an OTLP receiver. This module is loaded only when one of both is on. */

/** Reads the trace headers (W3C Trace Context). */
const propagator = new W3CTraceContextPropagator();
/** Returns the value of a request header by its lower-case name. */
export type HeaderOf = (name: string) => string | undefined;

export interface RequestSpan {
	readonly traceId: string;
	/** Runs `work`, whose commits become children of the span. */
	run<Result>(work: () => Result): Result;
	end(request: EndedRequest): void;
}

/** Sends spans of requests and of their commits. */
export class OtlpTracing implements AsyncDisposable {
	readonly #provider: TracerProvider;
	readonly #tracer: Tracer;
	/** The request on whose behalf the current code runs. */
	readonly #current = new AsyncLocalStorage<Context>();

	constructor(resource: Resource, sampler: SamplerSetting, log: EventLog) {
		// The exporter reads its own variables: endpoint, headers, compression, timeout and certificates.
		const exporter = logExportFailures(new OTLPTraceExporter(), "traces", log);
		this.#provider = new TracerProvider({
			resource,
			sampler: samplerOf(sampler),
			spanProcessors: [new BatchSpanProcessor({ exporter })],
		});
		this.#tracer = this.#provider.getTracer("conversations");
	}

	/** Starts the span of a request, as a child of the span in its `traceparent` header. */
	begin(headerOf: HeaderOf): RequestSpan {
		const parent = propagator.extract(ROOT_CONTEXT, headerOf, { get: (of, name) => of(name), keys: () => [] });
		const span = this.#tracer.startSpan("request", { kind: SpanKind.SERVER }, parent);
		const context = trace.setSpan(parent, span);
		return {
			traceId: span.spanContext().traceId,
			run: (work) => this.#current.run(context, work),
			end: (request) => endRequest(span, request),
		};
	}

	/** Runs `work` with a span for it, if it is a part of a request. */
	async during<Result>(name: string, work: () => Promise<Result>): Promise<Result> {
		const context = this.#current.getStore();
		if (context === undefined) return await work();
		const span = this.#tracer.startSpan(name, { kind: SpanKind.INTERNAL }, context);
		try {
			return await work();
		} catch (error) {
			fail(span, error instanceof ServiceError ? error.kind : "unexpected");
			throw error;
		} finally {
			span.end();
		}
	}

	[Symbol.asyncDispose](): Promise<void> {
		return this.#provider.shutdown();
	}
}

/**
 * Returns a reader of metrics that sends them.
 *
 * @param interval milliseconds between two exports
 */
export function metricsSender(interval: number, log: EventLog): IMetricReader {
	return new PeriodicExportingMetricReader({
		exporter: logExportFailures(new OTLPMetricExporter(), "metrics", log),
		exportIntervalMillis: interval,
		exportTimeoutMillis: Math.min(interval, 30_000),
	});
}

function endRequest(span: Span, request: EndedRequest): void {
	const { transport, status, failure } = request;
	span.updateName(spanNameOf(request));
	span.setAttributes(attributesOf(request));
	// A refusal is the client's mistake. In HTTP, only 5xx statuses make the server's span an error.
	const isFault = FAULTS.has(failure ?? "") || (transport === "http" && (status ?? 0) >= 500);
	if (isFault) fail(span, failure ?? String(status));
	span.end();
}

/** Kinds of failure for which the service is responsible. */
const FAULTS: ReadonlySet<string> = new Set(["internal", "data_loss", "unavailable", "unexpected"]);

function fail(span: Span, kind: string): void {
	span.setStatus({ code: SpanStatusCode.ERROR });
	span.setAttribute(ATTR_ERROR_TYPE, kind);
}

function samplerOf({ parentBased, share }: SamplerSetting): Sampler {
	const root = new TraceIdRatioBasedSampler(share);
	return parentBased ? new ParentBasedSampler({ root }) : root;
}

interface Exporter<Items> {
	export(items: Items, done: (result: ExportResult) => void): void;
}

/**
 * Makes an exporter write to the service's log when an export fails. Consecutive failures are logged once. The SDK
 * reports them only to its own log.
 *
 * @returns the same exporter
 */
function logExportFailures<Items, Kind extends Exporter<Items>>(
	exporter: Kind & Exporter<Items>,
	signal: "metrics" | "traces",
	log: EventLog,
): Kind {
	const send = exporter.export.bind(exporter);
	let failing = false;
	exporter.export = (items, done) =>
		send(items, (result) => {
			const fails = result.code !== ExportResultCode.SUCCESS;
			if (fails && !failing) log.emit("export_failed", { signal }, result.error ?? new Error("The export failed"));
			failing = fails;
			done(result);
		});
	return exporter;
}
