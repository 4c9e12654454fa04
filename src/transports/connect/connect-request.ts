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
import type { ReserveBytes } from "../http/body.ts";
import { unpack } from "../http/unpack.ts";
import { isEndless } from "../timeouts.ts";
import { encodeJsonMessage } from "./json-message.ts";

/** A request whose body is a stream of bytes. */
export type StreamedRequest = Omit<UniversalServerRequest, "body"> & { body: AsyncIterable<Uint8Array> };

/** Flag of an envelope whose message is compressed. */
const COMPRESSED = 1;

/** Settings of {@link takeMessage}. */
export interface TakeOptions {
	readonly input: DescMessage;
	/** Maximum number of bytes of the message, after decompression. */
	readonly maxBytes: number;
	/** Reserves memory for bytes of the request before they are kept. It throws to refuse the request. */
	readonly reserve: ReserveBytes;
	/** Called with the message in binary. */
	readonly onMessage: (message: Uint8Array) => void;
	/** Reports an error that occurred while reading, and returns the error to throw in its place. */
	readonly failed: (error: ServiceError) => ConnectError;
}

/**
 * Returns a copy of a request in which an empty message replaces the only message of the body. The message itself goes
 * to `onMessage`. So a method gets its request as bytes, and the parser of the Connect library, whose errors quote the
 * request, never sees what a client sent. The body is not read before the library reads the copy.
 */
export function takeMessage(request: StreamedRequest, options: TakeOptions): StreamedRequest {
	const type = request.header.get("Content-Type") ?? "";
	const json = /^application\/(?:connect\+|grpc-web\+)?json/i.test(type);
	// Connect puts each message of a stream into an envelope, and gRPC-Web each message of any call.
	const enveloped = /^application\/(?:connect\+|grpc-web)/i.test(type);
	const header = new Headers(request.header);
	if (isEndless(`${header.get("Connect-Timeout-Ms")}m`)) header.delete("Connect-Timeout-Ms");
	if (isEndless(header.get("Grpc-Timeout") ?? "")) header.delete("Grpc-Timeout");
	const read = enveloped ? readEnvelope : readPlain;
	if (!enveloped) {
		header.delete("Content-Length");
		// Another coding stays in the header, so that the library refuses it.
		if (header.get("Content-Encoding") === "gzip") header.delete("Content-Encoding");
	}
	const body = async function* (): AsyncGenerator<Uint8Array, void, undefined> {
		try {
			const message = await read(request, options);
			options.onMessage(json ? encodeJsonMessage(options.input, message) : message);
		} catch (error) {
			const mapped = serviceErrorOf(error, options);
			throw mapped instanceof ServiceError ? options.failed(mapped) : mapped;
		}
		const empty = json ? Buffer.from("{}") : new Uint8Array();
		yield enveloped ? encodeEnvelope(0, empty) : empty;
	};
	return { ...request, header, body: body() };
}

async function readPlain(request: StreamedRequest, options: TakeOptions): Promise<Uint8Array> {
	const { header } = request;
	const { maxBytes, reserve } = options;
	const bytes = await readAllBytes(countBody(request, options), maxBytes, header.get("Content-Length"));
	return header.get("Content-Encoding") === "gzip" ? await gunzip(bytes, maxBytes, reserve) : bytes;
}

/** Yields the body, and reserves memory for it: as a whole if the header says its size, otherwise as it arrives. */
async function* countBody({ header, body }: StreamedRequest, { maxBytes, reserve }: TakeOptions) {
	const declared = Number(header.get("Content-Length") ?? Number.POSITIVE_INFINITY);
	const isWhole = declared <= maxBytes;
	if (isWhole) reserve(declared);
	for await (const chunk of body) {
		if (!isWhole) reserve(chunk.byteLength);
		yield chunk;
	}
}

async function gunzip(bytes: Uint8Array, maxBytes: number, reserve: ReserveBytes): Promise<Uint8Array> {
	return bytes.byteLength === 0 ? bytes : await unpack(bytes, "gzip", maxBytes, reserve);
}

async function readEnvelope(request: StreamedRequest, options: TakeOptions): Promise<Uint8Array> {
	const { header } = request;
	const encoding = header.get("Connect-Content-Encoding") ?? header.get("Grpc-Encoding");
	const { input, maxBytes, reserve } = options;
	let message: Uint8Array | undefined;
	for await (const { flags, data } of pipe(countBody(request, options), transformSplitEnvelope(maxBytes))) {
		const isCompressed = flags === COMPRESSED && encoding === "gzip";
		// A second message is refused, and so are flags that only the end of a stream has.
		if (message !== undefined || (flags !== 0 && !isCompressed)) throw unreadableRequest(input);
		message = isCompressed ? await gunzip(data, maxBytes, reserve) : data;
	}
	if (message === undefined) throw unreadableRequest(input);
	return message;
}

/** Returns a `ServiceError` in place of an error about the body. Returns others, as of a lost connection, unchanged. */
function serviceErrorOf(error: unknown, { input, maxBytes }: TakeOptions): unknown {
	const kind = error instanceof ServiceError ? error.kind : undefined;
	const code = error instanceof ConnectError ? error.code : undefined;
	if (kind === "too_large" || code === Code.ResourceExhausted)
		return new ServiceError("too_large", `The request is larger than ${maxBytes} bytes`);
	if (kind === "invalid_argument" || code === Code.InvalidArgument || code === Code.Internal)
		return unreadableRequest(input, error);
	return error;
}
