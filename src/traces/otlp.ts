import { create, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Store } from "../store/store.ts";
import type { Attributes, Span } from "./spans.ts";

export const OTLP_TYPE = "application/x-protobuf";
/** Bytes of spans after which a request is full. */
const MAX_REQUEST = 1024 * 1024;
/** Values of `SpanKind` and `StatusCode`. */
const KINDS = { internal: 1, client: 3 } as const;
const ERROR = 2;
const MAX_TIME = 2n ** 64n - 1n;

/**
 * Returns the bodies of requests that export spans: messages `ExportTraceServiceRequest` of the protocol OTLP 1.x. Equal
 * spans have equal bodies.
 *
 * @param sender name and version of the service
 */
export function otlpRequests(
	spans: readonly Span[],
	sender: { readonly name: string; readonly version: string },
): Uint8Array[] {
	const groups: Uint8Array[][] = [];
	let size = MAX_REQUEST;
	for (const span of spans) {
		const bytes = message((writer) => writeSpan(writer, span));
		if (size >= MAX_REQUEST) {
			groups.push([]);
			size = 0;
		}
		groups.at(-1)?.push(bytes);
		size += bytes.length;
	}
	const { name, version } = sender;
	const resource = { "service.name": name, "service.version": version };
	return groups.map((group) =>
		message((request) =>
			nest(request, 1, (resourceSpans) => {
				nest(resourceSpans, 1, (writer) => writeAttributes(writer, 1, resource));
				nest(resourceSpans, 2, (scopeSpans) => {
					nest(scopeSpans, 1, (scope) => scope.tag(1, WireType.LengthDelimited).string(`${name}/traces`));
					for (const bytes of group) scopeSpans.tag(2, WireType.LengthDelimited).bytes(bytes);
				});
			}),
		),
	);
}

function writeSpan(writer: BinaryWriter, span: Span): void {
	const { traceId, spanId, parentId, name, kind, start, end, attributes, error } = span;
	writer.tag(1, WireType.LengthDelimited).bytes(Buffer.from(traceId, "hex"));
	writer.tag(2, WireType.LengthDelimited).bytes(Buffer.from(spanId, "hex"));
	if (parentId !== undefined) writer.tag(4, WireType.LengthDelimited).bytes(Buffer.from(parentId, "hex"));
	writer.tag(5, WireType.LengthDelimited).string(name);
	writer.tag(6, WireType.Varint).int32(KINDS[kind]);
	writer.tag(7, WireType.Bit64).fixed64(nanoseconds(start));
	writer.tag(8, WireType.Bit64).fixed64(nanoseconds(end));
	writeAttributes(writer, 9, error === undefined ? attributes : { ...attributes, "error.type": error.type });
	if (error !== undefined)
		nest(writer, 15, (status) => {
			if (error.message !== "") status.tag(2, WireType.LengthDelimited).string(error.message);
			status.tag(3, WireType.Varint).int32(ERROR);
		});
}

/** Returns a time in the form's unit, within its range: from 1970 to 2554. */
function nanoseconds(microseconds: bigint): bigint {
	const time = microseconds * 1000n;
	if (time < 0n) return 0n;
	return time < MAX_TIME ? time : MAX_TIME;
}

function writeAttributes(writer: BinaryWriter, field: number, attributes: Attributes): void {
	for (const [name, value] of Object.entries(attributes))
		nest(writer, field, (pair) => {
			pair.tag(1, WireType.LengthDelimited).string(name);
			nest(pair, 2, (any) => writeValue(any, value));
		});
}

function writeValue(writer: BinaryWriter, value: Attributes[string]): void {
	if (typeof value === "string") writer.tag(1, WireType.LengthDelimited).string(value);
	else if (typeof value === "boolean") writer.tag(2, WireType.Varint).bool(value);
	else if (typeof value !== "number")
		nest(writer, 5, (list) => {
			for (const one of value) nest(list, 1, (any) => writeValue(any, one));
		});
	else if (Number.isSafeInteger(value)) writer.tag(3, WireType.Varint).int64(value);
	else writer.tag(4, WireType.Bit64).double(value);
}

function nest(writer: BinaryWriter, field: number, write: (inner: BinaryWriter) => void): void {
	write(writer.tag(field, WireType.LengthDelimited).fork());
	writer.join();
}

function message(write: (writer: BinaryWriter) => void): Uint8Array {
	const writer = new BinaryWriter();
	write(writer);
	return writer.finish();
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
		...{
			id: ENDPOINT_ID,
			name: TRACES_ENDPOINT,
			owner: "",
			url,
			changes: CHANGES,
			form: TRACES_FORM,
			include: [],
			state: "active",
		},
		...{ filter: toBinary(ConversationFilterSchema, create(ConversationFilterSchema)), secrets: new Uint8Array() },
		...{ reason: "", position: (await updates.range()).newest, failures: 0, failingSince: undefined },
		...{ lastSuccessAt: undefined, lost: 0n, createdAt: BigInt(now) * 1000n, createdBy: "" },
	});
	if (!isNew) await tables.write.changeEndpoint({ id: ENDPOINT_ID, url, changes: CHANGES });
}
