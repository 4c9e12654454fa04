import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import { buffer } from "node:stream/consumers";
import { gunzipSync } from "node:zlib";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

type Attributes = Readonly<Record<string, string | number | boolean | readonly unknown[]>>;

/** A received span, with ids in hexadecimal. */
export interface ReceivedSpan {
	readonly traceId: string;
	readonly spanId: string;
	readonly parentId: string;
	readonly name: string;
	/** `SPAN_KIND_INTERNAL` is 1, `SPAN_KIND_SERVER` 2. */
	readonly kind: number;
	/** Unix time in nanoseconds. */
	readonly start: bigint;
	readonly end: bigint;
	readonly attributes: Attributes;
	/** `STATUS_CODE_ERROR` is 2. */
	readonly status: number;
	readonly message: string;
	readonly events: readonly { readonly name: string; readonly time: bigint; readonly attributes: Attributes }[];
	/** Resource attributes of the sender. */
	readonly resource: Attributes;
}

/** A field of a message: its bytes or its number. */
type Field = Uint8Array | bigint;
type Fields = ReadonlyMap<number, readonly Field[]>;

/** A server that receives data of OTLP exporters over HTTP (OTLP specification 1.x, protobuf encoding). */
export class OtlpReceiver implements AsyncDisposable {
	readonly spans: ReceivedSpan[] = [];
	/** Names of the received metrics. */
	readonly metrics = new Set<string>();
	/** Headers of the requests. */
	readonly headers: IncomingHttpHeaders[] = [];
	/** Decompressed bodies of the accepted requests. */
	readonly bodies: Buffer[] = [];
	/** Status of the responses. */
	status = 200;
	readonly #server: Server;

	private constructor(server: Server) {
		this.#server = server;
	}

	static async start(): Promise<OtlpReceiver> {
		const server = createServer(async (request, response) => {
			const body = await buffer(request);
			receiver.#take(request.url ?? "", request.headers, body);
			response.writeHead(receiver.status).end();
		});
		const receiver = new OtlpReceiver(server);
		server.listen(0, "127.0.0.1");
		await once(server, "listening");
		return receiver;
	}

	get url(): string {
		const address = this.#server.address();
		return `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
	}

	#take(path: string, headers: IncomingHttpHeaders, body: Buffer): void {
		this.headers.push(headers);
		if (this.status !== 200) return;
		const bytes = headers["content-encoding"] === "gzip" ? gunzipSync(body) : body;
		this.bodies.push(bytes);
		for (const resourced of messages(fieldsOf(bytes), 1)) {
			const resource = attributesOf(messages(resourced, 1).flatMap((found) => messages(found, 1)));
			for (const item of messages(resourced, 2).flatMap((scoped) => messages(scoped, 2))) {
				if (path === "/v1/traces") this.spans.push(spanOf(item, resource));
				else this.metrics.add(text(item, 1));
			}
		}
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#server.closeAllConnections();
		this.#server.close();
		await once(this.#server, "close");
	}
}

function spanOf(span: Fields, resource: ReceivedSpan["resource"]): ReceivedSpan {
	const [status] = messages(span, 15);
	return {
		traceId: hex(span, 1),
		spanId: hex(span, 2),
		parentId: hex(span, 4),
		name: text(span, 5),
		kind: Number(number(span, 6)),
		start: number(span, 7),
		end: number(span, 8),
		attributes: attributesOf(messages(span, 9)),
		status: status === undefined ? 0 : Number(number(status, 3)),
		message: status === undefined ? "" : text(status, 2),
		events: messages(span, 11).map((event) => ({
			...{ name: text(event, 2), time: number(event, 1), attributes: attributesOf(messages(event, 3)) },
		})),
		resource,
	};
}

function attributesOf(pairs: readonly Fields[]): Attributes {
	return Object.fromEntries(
		pairs.map((pair) => {
			const [value] = messages(pair, 2);
			if (value === undefined) throw new Error("an attribute has no value");
			return [text(pair, 1), anyValue(value)];
		}),
	);
}

function anyValue(value: Fields): Attributes[string] {
	if (value.has(1)) return text(value, 1);
	if (value.has(2)) return number(value, 2) === 1n;
	if (value.has(4)) return Buffer.from(new BigInt64Array([number(value, 4)]).buffer).readDoubleLE();
	const [list] = messages(value, 5);
	return list === undefined ? Number(number(value, 3)) : messages(list, 1).map(anyValue);
}

function fieldsOf(bytes: Uint8Array): Fields {
	const reader = new BinaryReader(bytes);
	const fields = new Map<number, Field[]>();
	while (reader.pos < reader.len) {
		const [field, wireType] = reader.tag();
		const known = fields.get(field) ?? [];
		fields.set(field, known);
		if (wireType === WireType.LengthDelimited) known.push(reader.bytes());
		else if (wireType === WireType.Varint) known.push(BigInt(reader.uint64()));
		else if (wireType === WireType.Bit64) known.push(BigInt(reader.fixed64()));
		else reader.skip(wireType, field);
	}
	return fields;
}

function messages(fields: Fields, field: number): Fields[] {
	return (fields.get(field) ?? []).flatMap((value) => (typeof value === "bigint" ? [] : [fieldsOf(value)]));
}

function bytesOf(fields: Fields, field: number): Buffer {
	const [value] = fields.get(field) ?? [];
	return value === undefined || typeof value === "bigint" ? Buffer.alloc(0) : Buffer.from(value);
}

function text(fields: Fields, field: number): string {
	return bytesOf(fields, field).toString();
}

function hex(fields: Fields, field: number): string {
	return bytesOf(fields, field).toString("hex");
}

function number(fields: Fields, field: number): bigint {
	const [value] = fields.get(field) ?? [];
	return typeof value === "bigint" ? value : 0n;
}
