import { type DescEnum, type DescMessage, fromJson, fromJsonString, toBinary } from "@bufbuild/protobuf";
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
			options.taken(json ? fromJsonBytes(options.input, message) : message);
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

/** @throws ServiceError `invalid_argument` for what is not the message in protobuf's JSON form, in UTF-8 */
function fromJsonBytes(input: DescMessage, bytes: Uint8Array): Uint8Array {
	try {
		const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
		if (hasLoneSurrogate(text)) throw new TypeError("a string has a lone surrogate");
		// JSON.parse rounds integers beyond 2^53, which have 16 digits and more.
		const isExact = !/\d{16}/.test(text);
		const json = JSON.parse(text, isExact ? undefined : exactInteger);
		requireKnownEnums(input, json);
		requireKnownFilter(input, json);
		const options = { ignoreUnknownFields: true };
		// Of the text the library sees also whether a member is given twice.
		return toBinary(input, isExact ? fromJsonString(input, text, options) : fromJson(input, json, options));
	} catch (cause) {
		throw unreadableRequest(input, cause);
	}
}

/**
 * The library takes an unknown name of an enum's value for an unknown field and leaves it out: a filter by it would list
 * everything.
 *
 * @throws TypeError when a field that the message has is an enum, and its value is a name that the enum does not have
 */
function requireKnownEnums({ typeName, fields }: DescMessage, json: unknown): void {
	// Google's own types, such as Value, have a JSON form of their own.
	if (!isObject(json) || typeName.startsWith("google.protobuf.")) return;
	for (const field of fields) {
		if (field.message === undefined && field.enum === undefined) continue;
		const value = json[field.jsonName] ?? json[field.name];
		const isCollection = (field.fieldKind === "list" || field.fieldKind === "map") && isObject(value);
		for (const item of isCollection ? Object.values(value) : [value])
			if (field.enum !== undefined) requireKnown(field.enum, item);
			else requireKnownEnums(field.message, item);
	}
}

/** @throws TypeError when a filter has a member that is not known: as in a message in binary, it would list too much */
function requireKnownFilter({ fields }: DescMessage, json: unknown): void {
	const filter = fields.find(({ name }) => name === "filter")?.message;
	const members = isObject(json) ? json.filter : undefined;
	if (filter === undefined || !isObject(members)) return;
	const names = new Set(filter.fields.flatMap(({ jsonName, name }) => [jsonName, name]));
	if (!Object.keys(members).every((name) => names.has(name)))
		throw new TypeError(`${filter.typeName} has no such field`);
}

function requireKnown({ typeName, values }: DescEnum, name: unknown): void {
	if (typeof name === "string" && !values.some((value) => value.name === name))
		throw new TypeError(`${typeName} has no such value`);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
	return typeof value === "object" && value !== null;
}

/**
 * A reviver for JSON.parse that gives a bigint for an integer that a double would round. A field of integers takes it; a
 * google.protobuf.Value, whose numbers are doubles, does not.
 */
function exactInteger(_: string, value: unknown, { source = "" }: { source?: string } = {}): unknown {
	if (typeof value !== "number" || Number.isSafeInteger(value) || !/^-?\d+$/.test(source)) return value;
	return Number.isFinite(value) && BigInt(value) === BigInt(source) ? value : BigInt(source);
}

/** An escape in a JSON text; the first group takes a surrogate that is not half of a pair. */
const ESCAPE = /\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|(u[dD][89a-fA-F])|.)/gs;

/** Whether a JSON text has an escape for half a character, which protobuf's strings cannot hold. */
function hasLoneSurrogate(text: string): boolean {
	if (!/\\u[dD]/.test(text)) return false;
	for (const [, lone] of text.matchAll(ESCAPE)) if (lone !== undefined) return true;
	return false;
}
