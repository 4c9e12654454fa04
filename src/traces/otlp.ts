import { create, toBinary } from "@bufbuild/protobuf";
import { SpanKind, SpanStatusCode } from "@opentelemetry/api";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Store } from "../store/store.ts";
import type { Span } from "./spans.ts";

export const OTLP_TYPE = "application/x-protobuf";
/** Characters of attributes after which a request is full. */
const MAX_REQUEST = 1024 * 1024;
const KINDS = { internal: SpanKind.INTERNAL, client: SpanKind.CLIENT } as const;
const MAX_TIME = 2n ** 64n - 1n;

/**
 * Returns the bodies of requests that export spans: messages `ExportTraceServiceRequest` of the protocol OTLP 1.x. Equal
 * spans have equal bodies. The library is loaded with the first ones.
 *
 * @param sender name and version of the service
 */
export async function otlpRequests(
	spans: readonly Span[],
	{ name, version }: { readonly name: string; readonly version: string },
): Promise<Uint8Array[]> {
	const [{ ProtobufTraceSerializer }, { resourceFromAttributes }] = await Promise.all([
		import("@opentelemetry/otlp-transformer"),
		import("@opentelemetry/resources"),
	]);
	const from = {
		resource: resourceFromAttributes({ "service.name": name, "service.version": version }),
		instrumentationScope: { name: `${name}/traces` },
	};
	const groups: ReadableSpan[][] = [];
	let size = MAX_REQUEST;
	for (const span of spans) {
		if (size >= MAX_REQUEST) {
			groups.push([]);
			size = 0;
		}
		groups.at(-1)?.push({ ...readableSpan(span), ...from });
		size += [span, ...span.events].reduce((sum, { attributes }) => sum + JSON.stringify(attributes).length, 0);
	}
	return groups.flatMap((group) => ProtobufTraceSerializer.serializeRequest(group) ?? []);
}

function readableSpan(span: Span): Omit<ReadableSpan, "resource" | "instrumentationScope"> {
	const { traceId, spanId, parentId, name, kind, start, end, attributes, error, events } = span;
	const contextOf = (id: string) => ({ traceId, spanId: id, traceFlags: 1 });
	return {
		...{ name, kind: KINDS[kind], startTime: timeOf(start), endTime: timeOf(end), duration: [0, 0], ended: true },
		spanContext: () => contextOf(spanId),
		...(parentId === undefined ? {} : { parentSpanContext: contextOf(parentId) }),
		attributes: error === undefined ? attributes : { ...attributes, "error.type": error.type },
		status:
			error === undefined ? { code: SpanStatusCode.UNSET } : { code: SpanStatusCode.ERROR, message: error.message },
		events: events.map(({ name, at, attributes }) => ({ name, time: timeOf(at), attributes })),
		...{ links: [], droppedAttributesCount: 0, droppedEventsCount: 0, droppedLinksCount: 0 },
	};
}

/** Returns a time in seconds and nanoseconds, within the range of the form: from 1970 to 2554. */
function timeOf(microseconds: bigint): [number, number] {
	const time = microseconds * 1000n;
	const within = time < 0n ? 0n : time < MAX_TIME ? time : MAX_TIME;
	return [Number(within / 1_000_000_000n), Number(within % 1_000_000_000n)];
}

/** Name of the endpoint of traces. No caller can give an endpoint this name. */
export const TRACES_ENDPOINT = "$traces";
export const TRACES_FORM = "otlp";
const ENDPOINT_ID = "traces";

/** Changes with which a run may have ended. One that began and ended in one post has changed no status. */
const CHANGES = ["STARTED", "UPDATED", "PAUSED", "FINISHED", "FAILED", "STUCK", "DELETED"];

/**
 * Makes the endpoint whose position says how far traces were sent; it begins at the newest update. Without an address it is
 * removed.
 */
export async function followTraces(
	{ updates, tables }: Pick<Store, "updates" | "tables">,
	url: string | undefined,
	now: number,
): Promise<void> {
	if (url === undefined) {
		const known = await tables.read.listEndpoints({ owner: "" });
		if (known.some(({ id }) => id === ENDPOINT_ID)) await tables.write.deleteEndpoint(ENDPOINT_ID);
		return;
	}
	const isNew = await tables.write.createEndpoint({
		...{ id: ENDPOINT_ID, name: TRACES_ENDPOINT, owner: "", url, changes: CHANGES, form: TRACES_FORM, include: [] },
		...{ filter: toBinary(ConversationFilterSchema, create(ConversationFilterSchema)), secrets: new Uint8Array() },
		...{ state: "active", reason: "", position: (await updates.range()).newest, failures: 0, failingSince: undefined },
		...{ lastSuccessAt: undefined, lost: 0n, createdAt: BigInt(now) * 1000n, createdBy: "" },
	});
	if (!isNew) await tables.write.changeEndpoint({ id: ENDPOINT_ID, url, changes: CHANGES });
}
