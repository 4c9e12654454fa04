import type { DescMessage } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
	encodeEnvelope,
	pipe,
	readAllBytes,
	transformSplitEnvelope,
	type UniversalServerRequest,
} from "@connectrpc/connect/protocol";
import { ServiceError } from "../../errors.ts";
import { unreadableRequest } from "../../rpc/rpc-method.ts";
import type { TakeBytes } from "../http/body.ts";
import { unpack } from "../http/unpack.ts";
import { isEndless } from "../timeouts.ts";
import { encodeJsonMessage } from "./json-message.ts";

/** A request whose body is a stream of bytes. */
export type StreamedRequest = Omit<UniversalServerRequest, "body"> & { body: AsyncIterable<Uint8Array> };

/** Flag of an envelope whose message is compressed. */
const PACKED = 1;

/** Settings of {@link takeMessage}. */
export interface TakeOptions {
	readonly input: DescMessage;
	/** Most bytes of the message, after decompression. */
	readonly maxBytes: number;
	/** Is told of the bytes of the request before they are kept. What it throws refuses the request. */
	readonly take: TakeBytes;
	/** Gets the encoded message. */
	readonly taken: (message: Uint8Array) => void;
	/** Gives the error to throw for one that was met while reading. */
	readonly failed: (error: ServiceError) => ConnectError;
}

/**
 * Takes the message out of a request with exactly one, and puts an empty message in its place, which the Connect
 * library then parses. So a method gets its request as bytes, and the library's own parser, whose errors quote the
 * request, never sees what a client sent. Nothing is read before the library reads the body.
 */
export function takeMessage(request: StreamedRequest, options: TakeOptions): StreamedRequest {
	const type = request.header.get("Content-Type") ?? "";
	const json = /^application\/(?:connect\+|grpc-web\+)?json/i.test(type);
	// Streams of Connect, and all calls of gRPC-Web, put each message into an envelope.
	const enveloped = /^application\/(?:connect\+|grpc-web)/i.test(type);
	const header = new Headers(request.header);
	if (isEndless(`${header.get("Connect-Timeout-Ms")}m`)) header.delete("Connect-Timeout-Ms");
	if (isEndless(header.get("Grpc-Timeout") ?? "")) header.delete("Grpc-Timeout");
	const read = enveloped ? readEnvelope : readPlain;
	if (!enveloped) {
		header.delete("Content-Length");
		// Any other coding stays, and the library refuses it.
		if (header.get("Content-Encoding") === "gzip") header.delete("Content-Encoding");
	}
	const body = async function* (): AsyncGenerator<Uint8Array, void, undefined> {
		try {
			const message = await read(request, options);
			options.taken(json ? encodeJsonMessage(options.input, message) : message);
		} catch (error) {
			const typed = typedError(error, options);
			throw typed instanceof ServiceError ? options.failed(typed) : typed;
		}
		const empty = json ? Buffer.from("{}") : new Uint8Array();
		yield enveloped ? encodeEnvelope(0, empty) : empty;
	};
	return { ...request, header, body: body() };
}

async function readPlain(request: StreamedRequest, options: TakeOptions): Promise<Uint8Array> {
	const { header } = request;
	const { maxBytes, take } = options;
	const bytes = await readAllBytes(counted(request, options), maxBytes, header.get("Content-Length"));
	return header.get("Content-Encoding") === "gzip" ? await gunzip(bytes, maxBytes, take) : bytes;
}

/** The body, whose bytes are counted: as a whole where the header gives their number, else as they arrive. */
async function* counted({ header, body }: StreamedRequest, { maxBytes, take }: TakeOptions) {
	const declared = Number(header.get("Content-Length") ?? Number.POSITIVE_INFINITY);
	const isWhole = declared <= maxBytes;
	if (isWhole) take(declared);
	for await (const chunk of body) {
		if (!isWhole) take(chunk.byteLength);
		yield chunk;
	}
}

async function gunzip(bytes: Uint8Array, maxBytes: number, take: TakeBytes): Promise<Uint8Array> {
	return bytes.byteLength === 0 ? bytes : await unpack(bytes, "gzip", maxBytes, take);
}

async function readEnvelope(request: StreamedRequest, options: TakeOptions): Promise<Uint8Array> {
	const { header } = request;
	const encoding = header.get("Connect-Content-Encoding") ?? header.get("Grpc-Encoding");
	const { input, maxBytes, take } = options;
	let message: Uint8Array | undefined;
	for await (const { flags, data } of pipe(counted(request, options), transformSplitEnvelope(maxBytes))) {
		const isPacked = flags === PACKED && encoding === "gzip";
		// A second message, or a flag that only ends of streams have.
		if (message !== undefined || (flags !== 0 && !isPacked)) throw unreadableRequest(input);
		message = isPacked ? await gunzip(data, maxBytes, take) : data;
	}
	if (message === undefined) throw unreadableRequest(input);
	return message;
}

/** The service's own error for one of the library's about the body. Others, such as of a lost connection, stay. */
function typedError(error: unknown, { input, maxBytes }: TakeOptions): unknown {
	const kind = error instanceof ServiceError ? error.kind : undefined;
	const code = error instanceof ConnectError ? error.code : undefined;
	if (kind === "too_large" || code === Code.ResourceExhausted)
		return new ServiceError("too_large", `The request is larger than ${maxBytes} bytes`);
	if (kind === "invalid_argument" || code === Code.InvalidArgument || code === Code.Internal)
		return unreadableRequest(input, error);
	return error;
}
