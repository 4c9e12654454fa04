import {
	create,
	type DescMessage,
	fromBinary,
	fromJson,
	type JsonObject,
	type JsonValue,
	toBinary,
	toJsonString,
} from "@bufbuild/protobuf";
import {
	Code,
	ConnectError,
	type ConnectRouter,
	createConnectRouter,
	createContextKey,
	createContextValues,
	type HandlerContext,
} from "@connectrpc/connect";
import {
	compressionGzip,
	universalRequestFromNodeRequest,
	universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import { rpcPath } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import { type ErrorKind, ServiceError } from "../../errors.ts";
import { readExactJson } from "../../record/json/exact-json.ts";
import { type ExactJson, setMember } from "../../record/json/json-value.ts";
import { type StreamRpc, toConnectError, type UnaryRpc, unreadableRequest } from "../../rpc/rpc-method.ts";
import type { ObservedRequest } from "../../telemetry/requests.ts";
import { isLarge, type Permit, workOf } from "../admission.ts";
import { certificateNameOf, LIMITS, type Limits } from "../connections.ts";
import { type BodyRequest, type ReserveBytes, readBody, unpack } from "../http/body.ts";
import { enter, limitResponseTime, sendStatus } from "../http/exchange.ts";
import type { ObservedHandler, Request, Response } from "../http/http-listener.ts";
import { type HeldBatches, lengthPrefixed, PREFIX_BYTES, type RpcTransportOptions } from "../stream-messages.ts";

interface ConnectOptions extends RpcTransportOptions {
	readonly limits?: Pick<Limits, "answerTime" | "readRequestBytes">;
}

interface Call extends MessageForm {
	readonly request: Request;
	readonly response: Response;
	readonly observed: ObservedRequest;
	admitted: { readonly caller: Principal; readonly permit: Permit } | undefined;
	message: Uint8Array | undefined;
	/** Chunks that replace the next empty message of the response body. */
	next: readonly Uint8Array[] | undefined;
	reported: boolean;
}

const CALL = createContextKey<Call | undefined>(undefined, { description: "call" });

/**
 * Returns the handlers that serve methods over the Connect and gRPC-Web protocols, by path.
 *
 * The library serves the protocols, but messages pass it as bytes: it gets an empty message in place of the request, and
 * an empty one in place of each response message, which {@link responseBody} replaces. So records are neither decoded nor
 * encoded here, and watches share the bytes of their messages.
 *
 * @param basePath prefix below which the methods are served, too, so that the console can use relative addresses
 */
export function connectHandlers(options: ConnectOptions, basePath = ""): ReadonlyMap<string, ObservedHandler> {
	const { methods, gate, admission, stopping, limits = LIMITS } = options;
	const router = createConnectRouter({
		// gRPC has a listener of its own, and over HTTP/1.1 it would lack its trailers.
		grpc: false,
		acceptCompression: [compressionGzip],
		// Responses are small or limited by the page size, so compression costs more time than it saves.
		compressMinBytes: 0xffffffff,
		// A longer timer of Node.js would end at once.
		maxTimeoutMs: 2 ** 31 - 1,
		shutdownSignal: stopping,
		requestGate: ({ values, method }) => {
			const call = callOf(values);
			const path = rpcPath(method);
			try {
				const { request, response, observed } = call;
				const caller = gate.admitRpc(path, request.rawHeaders, () => certificateNameOf(request.socket));
				observed.admitted(caller, gate.scopeOf(path));
				const work = workOf(gate.scopeOf(path), method.methodKind !== "unary");
				call.admitted = { caller, permit: enter(admission, work, request, response) };
			} catch (error) {
				throw failed(call, error);
			}
		},
	});
	for (const rpc of methods)
		if (rpc.kind === "unary") mountUnary(router, rpc);
		else mountStream(router, rpc, options.held);
	return new Map(
		router.handlers.flatMap((handler) => {
			const { method, requestPath } = handler;
			const isUnary = method.methodKind === "unary";
			const maxBytes = isLarge(gate.scopeOf(rpcPath(method))) ? options.maxBodyBytes : limits.readRequestBytes;
			const handle: ObservedHandler = (request, response, observed) => {
				const { headers } = request;
				const type = headers["content-type"] ?? "";
				const isGrpcWeb = type.startsWith("application/grpc-web");
				observed.routed(requestPath, isGrpcWeb ? "grpc-web" : "connect");
				const call: Call = {
					...{ request, response, observed },
					input: method.input,
					gzip: (headers["connect-content-encoding"] ?? headers["grpc-encoding"]) === "gzip",
					maxBytes,
					json: /^application\/(?:connect\+|grpc-web\+)?json/i.test(type),
					prefixed: isGrpcWeb || /^application\/connect\+/i.test(type),
					...{ admitted: undefined, message: undefined, next: undefined, reported: false },
				};
				const values = createContextValues().set(CALL, call);
				let universal: ReturnType<typeof universalRequestFromNodeRequest>;
				try {
					universal = universalRequestFromNodeRequest(request, response, undefined, values);
				} catch (cause) {
					// The library builds a URL from the Host header, and throws if the header is malformed.
					failed(call, new ServiceError("invalid_argument", "The Host header is malformed", { cause }));
					sendStatus(response, 400);
					return;
				}
				const header = headerForLibrary(universal.header, call.prefixed);
				handler({ ...universal, header, body: requestBody(call) })
					.then(async (answered) => {
						// The library itself refuses some requests because of their header.
						if (answered.status >= 400 && !call.reported) failed(call, headerRefusal(answered.status));
						if (isUnary) limitResponseTime(request, response, limits.answerTime);
						// A message without a prefix is one chunk.
						const [plain] = call.prefixed ? [] : (call.next ?? []);
						if (plain !== undefined) answered.header?.set("Content-Length", String(plain.byteLength));
						const body = answered.body === undefined ? {} : { body: responseBody(call, answered.body) };
						await universalResponseToNodeResponse({ ...answered, ...body }, response);
					})
					.catch((error: unknown) => {
						// A client that has gone is not a failure.
						if (!isClientGone(error)) failed(call, error);
						response.destroy();
					});
			};
			return [requestPath, `${basePath}${requestPath}`].map((path) => [path, handle] as const);
		}),
	);
}

/** Reports an error, and returns it in the form that clients see. */
function failed(call: Call, error: unknown): ConnectError {
	call.reported = true;
	call.observed.failed(error);
	return toConnectError(error);
}

/** Returns the header of a request without what is decoded before the library. */
function headerForLibrary(received: Headers, prefixed: boolean): Headers {
	const header = new Headers(received);
	header.delete("Content-Length");
	// Another coding stays in the header, so that the library refuses it.
	if (!prefixed && header.get("Content-Encoding") === "gzip") header.delete("Content-Encoding");
	return header;
}

/** Reads the message of a call when the library reads the body, and yields an empty message in its place. */
async function* requestBody(call: Call): AsyncGenerator<Uint8Array, void, undefined> {
	try {
		call.message = await readMessage(call.request, call, (bytes) => call.admitted?.permit.reserve(bytes));
	} catch (error) {
		if (error instanceof ServiceError) throw failed(call, error);
		call.reported = true;
		throw new ConnectError("the client has gone", Code.Aborted);
	}
	call.observed.received(call.message);
	const empty = Buffer.from(call.json ? "{}" : "");
	yield call.prefixed ? Buffer.concat(lengthPrefixed([empty])) : empty;
}

/** Yields the body of a response. The messages of the call replace the empty ones of the library. */
async function* responseBody(call: Call, body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
	for await (const chunk of body) {
		const { next } = call;
		call.next = undefined;
		if (next === undefined) yield chunk;
		else yield* next;
	}
}

/**
 * Whether an error says that a response could not be written because its client has gone. The library uses `Aborted`
 * for most such errors, but not for a response that waits in the socket when the connection ends (libuv's ECANCELED,
 * EPIPE).
 */
function isClientGone(error: unknown): boolean {
	const { code, cause } = ConnectError.from(error);
	if (code === Code.Aborted) return true;
	return cause instanceof Error && "code" in cause && (cause.code === "ECANCELED" || cause.code === "EPIPE");
}

/** Returns the error to report for a request that the library has refused because of its header. */
function headerRefusal(status: number): ServiceError {
	const kinds: Readonly<Record<number, ErrorKind>> = { 405: "method_not_allowed", 415: "unsupported_media_type" };
	return new ServiceError(kinds[status] ?? "invalid_argument", "The headers of the request are not supported");
}

function mountUnary(router: ConnectRouter, { method, handle }: UnaryRpc): void {
	router.rpc(method, async (_, { values, signal }) => {
		const call = callOf(values);
		const { message, caller, permit } = startOf(call);
		const release = permit.hold();
		try {
			const encoded = await call.observed.run(() => handle(message, caller, signal));
			const answer = call.json ? jsonOf(method.output, encoded) : encoded;
			permit.reserveResponse(answer.byteLength);
			call.next = call.prefixed ? lengthPrefixed([answer]) : [answer];
			return create(method.output);
		} catch (error) {
			// A call that is over did not fail: nobody waits for its response.
			throw signal.aborted ? toConnectError(signal.reason) : failed(call, error);
		} finally {
			release();
		}
	});
}

function mountStream(router: ConnectRouter, { method, stream }: StreamRpc, held: HeldBatches): void {
	router.rpc(method, async function* (_, { values, signal }) {
		const call = callOf(values);
		const { message, caller } = startOf(call);
		try {
			for await (const batch of stream(message, caller, signal)) {
				const { chunks, release } = held.hold(batch, call.json ? "json" : "bytes");
				// The library may never resume the iteration when the client has gone.
				signal.addEventListener("abort", release, { once: true });
				try {
					call.next = chunks;
					// The library resumes the iteration when the client has taken the message.
					yield create(method.output);
				} finally {
					signal.removeEventListener("abort", release);
					release();
				}
			}
		} catch (error) {
			// A stream that its client cancelled, or that the service stopped, did not fail.
			throw signal.aborted ? toConnectError(error) : failed(call, error);
		}
	});
}

function callOf(values: HandlerContext["values"]): Call {
	const call = values.get(CALL);
	if (call === undefined) throw new TypeError("the request did not come from a listener");
	return call;
}

/** Returns what a method needs. The library calls a method only after the gate and after it has read the body. */
function startOf({ message, admitted }: Call) {
	if (message === undefined || admitted === undefined)
		throw new TypeError("a method was called before its request was read");
	return { message, ...admitted };
}

/** How a request carries its message. */
interface MessageForm {
	readonly input: DescMessage;
	readonly json: boolean;
	/** Whether a prefix stands before each message: in streams of Connect, and in gRPC-Web. */
	readonly prefixed: boolean;
	/** Whether a message whose prefix has the flag for compression is compressed by gzip. */
	readonly gzip: boolean;
	readonly maxBytes: number;
}

/**
 * Reads the only message of a request, and returns it in binary.
 *
 * The Connect library never sees what a client sent: its errors quote the request, which may hold secrets, and
 * `JSON.parse` alters some names and numbers.
 */
async function readMessage(request: BodyRequest, form: MessageForm, reserve: ReserveBytes): Promise<Uint8Array> {
	const { input, json, maxBytes } = form;
	let message: Uint8Array;
	try {
		message = await readBytes(request, form, reserve);
	} catch (error) {
		const kind = error instanceof ServiceError ? error.kind : undefined;
		if (kind === "too_large") throw new ServiceError("too_large", `The request is larger than ${maxBytes} bytes`);
		throw kind === "invalid_argument" ? unreadableRequest(input, error) : error;
	}
	return json ? jsonToBinary(input, message) : message;
}

async function readBytes(request: BodyRequest, form: MessageForm, reserve: ReserveBytes): Promise<Uint8Array> {
	const { input, prefixed, gzip, maxBytes } = form;
	if (!prefixed) return await readBody(request, maxBytes, reserve);
	const body = await readBody(request, PREFIX_BYTES + maxBytes, reserve);
	const message = body.subarray(PREFIX_BYTES);
	if (body.length < PREFIX_BYTES || body.readUInt32BE(1) !== message.length) throw unreadableRequest(input);
	if (body[0] === 0) return message;
	// Other flags mark the end of a stream.
	if (body[0] !== 1 || !gzip) throw unreadableRequest(input);
	return message.length === 0 ? message : await unpack(message, maxBytes, reserve);
}

/** Returns an encoded message as ProtoJSON in UTF-8. */
export function jsonOf(output: DescMessage, encoded: Uint8Array): Uint8Array {
	return Buffer.from(toJsonString(output, fromBinary(output, encoded)));
}

/**
 * Returns the binary form of a message in ProtoJSON (https://protobuf.dev/programming-guides/json/). Unknown members are
 * refused, and so are numbers that a double would round.
 *
 * @throws ServiceError `invalid_argument` that names the place which is not valid
 */
export function jsonToBinary(input: DescMessage, bytes: Uint8Array): Uint8Array {
	try {
		const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
		return toBinary(input, fromJson(input, doubles(readExactJson(text))));
	} catch (cause) {
		// The rest of the library's message quotes the value, or the name of the unknown member.
		const said = cause instanceof Error ? cause.message : "";
		const [, place] = /^cannot decode ((?:field|message|enum) [\w.]+) from JSON/.exec(said) ?? [];
		throw unreadableRequest(input, cause, place);
	}
}

/**
 * Returns JSON whose numbers are doubles.
 *
 * @throws TypeError when a number is an integer that a double would round, or beyond the range of a double, or when a
 *   string has a lone surrogate, which protobuf strings cannot hold
 */
function doubles(json: ExactJson): JsonValue {
	switch (typeof json) {
		case "string":
			return wellFormed(json);
		case "bigint":
			return exactDouble(json);
		case "number":
			if (!Number.isFinite(json)) throw new TypeError("a number is beyond the range of a double");
			return json;
		case "boolean":
			return json;
	}
	if (json === null) return null;
	if (Array.isArray(json)) return json.map(doubles);
	const members: JsonObject = {};
	for (const [name, value] of Object.entries(json)) setMember(members, wellFormed(name), doubles(value));
	return members;
}

function wellFormed(text: string): string {
	if (!text.isWellFormed()) throw new TypeError("a string has a lone surrogate");
	return text;
}

/**
 * Returns the double that equals an integer, or whose shortest decimal form does, because clients write doubles in that
 * form (1e23).
 */
function exactDouble(integer: bigint): number {
	const value = Number(integer);
	if (BigInt(value) !== integer && readExactJson(String(value)) !== integer)
		throw new TypeError("a double cannot represent the number exactly");
	return value;
}
