import { AsyncLocalStorage } from "node:async_hooks";
import {
	type Context,
	defaultTextMapGetter,
	ROOT_CONTEXT,
	type Span,
	SpanKind,
	SpanStatusCode,
	type Tracer,
	trace,
} from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import type { Resource } from "@opentelemetry/resources";
import {
	AlwaysOffSampler,
	AlwaysOnSampler,
	BatchSpanProcessor,
	ParentBasedSampler,
	type Sampler,
	TraceIdRatioBasedSampler,
	TracerProvider,
} from "@opentelemetry/sdk-trace";
import { ATTR_ERROR_TYPE } from "@opentelemetry/semantic-conventions";
import { ServiceError } from "../errors.ts";
import type { AnsweredGroup } from "../threads/protocol.ts";
import type { CallEnd } from "../threads/worker-thread.ts";
import { attributesOf, type EndedRequest, isRpc, spanNameOf } from "./ended-request.ts";
import { logExportFailures } from "./exports.ts";
import type { Logger } from "./log.ts";
import type { SamplerSetting } from "./otel-settings.ts";

const propagator = new W3CTraceContextPropagator();
/** Trace headers (W3C Trace Context). */
const HEADERS = ["traceparent", "tracestate"] as const;

/** Returns the value of a request header by its lower-case name. */
export type HeaderOf = (name: string) => string | undefined;

/** The span of a request. */
export interface RequestSpan {
	/** Trace id, in hexadecimal. */
	readonly traceId: string;
	/** Runs `work`. The calls to threads that it makes become children of the span. */
	run<Result>(work: () => Result): Result;
	end(request: EndedRequest): void;
}

/** A request under way. */
interface Running {
	/** The OpenTelemetry context with the request's span. */
	readonly context: Context;
	ended: boolean;
}

/**
 * Sends spans to an OTLP receiver: of requests, of their calls to threads, and of commits. This module is loaded only
 * when tracing is on.
 */
export class OtlpTracing implements AsyncDisposable {
	readonly #provider: TracerProvider;
	readonly #tracer: Tracer;
	/** The request on whose behalf the current code runs. */
	readonly #current = new AsyncLocalStorage<Running>();

	constructor(resource: Resource, sampler: SamplerSetting, log: Pick<Logger, "exportFailed">) {
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
		const carrier = Object.fromEntries(HEADERS.map((name) => [name, headerOf(name)]));
		const parent = propagator.extract(ROOT_CONTEXT, carrier, defaultTextMapGetter);
		const span = this.#tracer.startSpan("request", { kind: SpanKind.SERVER }, parent);
		const running: Running = { context: trace.setSpan(parent, span), ended: false };
		return {
			traceId: span.spanContext().traceId,
			run: (work) => this.#current.run(running, work),
			end: (request) => {
				running.ended = true;
				endRequest(span, request);
			},
		};
	}

	/** Starts the span of a call to a thread, under the current request. Returns undefined when nothing is recorded. */
	beginCall(thread: string, call: string): CallEnd | undefined {
		const running = this.#current.getStore();
		// Work that a request has started, such as reading on for watchers, may outlive the request.
		if (running === undefined || running.ended) return undefined;
		const { context } = running;
		const span = this.#tracer.startSpan(`${thread} ${call}`, { kind: SpanKind.INTERNAL }, context);
		if (!span.isRecording()) return undefined;
		return (error, group) => {
			if (group !== undefined) this.#commit(trace.setSpan(context, span), group);
			if (error !== undefined) fail(span, error instanceof ServiceError ? error.kind : "unexpected");
			span.end();
		};
	}

	/** Adds a span for the commit that a call waited for. Every request that shared the commit gets its own. */
	#commit(context: Context, { startedAt, duration, ids }: AnsweredGroup): void {
		const attributes = { "conversations.commit.size": ids.length };
		this.#tracer.startSpan("commit", { startTime: startedAt, attributes }, context).end(startedAt + duration);
	}

	[Symbol.asyncDispose](): Promise<void> {
		return this.#provider.shutdown();
	}
}

function endRequest(span: Span, request: EndedRequest): void {
	const { target, status, failure } = request;
	span.updateName(spanNameOf(target));
	span.setAttributes(attributesOf(request));
	// A refusal is the client's mistake. In HTTP, only 5xx statuses make the server's span an error.
	const isFault = FAULTS.has(failure ?? "") || (!isRpc(target) && (status ?? 0) >= 500);
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
	const root =
		share === 1 ? new AlwaysOnSampler() : share === 0 ? new AlwaysOffSampler() : new TraceIdRatioBasedSampler(share);
	return parentBased ? new ParentBasedSampler({ root }) : root;
}
