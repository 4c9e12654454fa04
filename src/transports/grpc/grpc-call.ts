import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { constants, type Http2Session, type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { Duplex } from "node:stream";
import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata, ServerInterceptingCall, type ServerInterceptingCallInterface, status } from "@grpc/grpc-js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import type { Principal } from "../../access/keys.ts";
import { type ErrorKind, ServiceError } from "../../errors.ts";
import { toConnectError } from "../../rpc/rpc-method.ts";
import { type ObservedRequest, REQUEST_ID_HEADER, type Requests } from "../../telemetry/requests.ts";
import { isLarge, type Permit, workOf } from "../admission.ts";
import { certificateName, type Limits, limitStream, peerOf } from "../connections.ts";
import { DISCARDED_BYTES } from "../http/body.ts";
import { PREFIX_BYTES, type RpcTransportOptions } from "../stream-messages.ts";

/** Matches the methods that need no key: probes have none, and the schema is public. They reveal no conversation. */
const KEYLESS = /^\/grpc\.(?:health\.v1\.Health|reflection\.v1(?:alpha)?\.ServerReflection)\//;

/** What the calls of a listener share. */
interface CallContext extends Pick<RpcTransportOptions, "gate" | "admission" | "maxBodyBytes"> {
	readonly isStream: ReadonlyMap<string, boolean>;
	readonly requests: Requests;
	readonly limits: Limits;
}

interface AdmittedCall {
	readonly caller: Principal;
	readonly permit: Permit;
	readonly observed: ObservedRequest;
}

/** By the metadata, because grpc-js has no other value of a call that both its interceptor and its handler get. */
const ADMITTED = new WeakMap<Metadata, AdmittedCall>();

/** Returns the call that the gate has let in with this metadata. */
export function admittedCall(metadata: Metadata): AdmittedCall {
	const call = ADMITTED.get(metadata);
	// Cannot happen, because calls reach a method only through the gate.
	if (call === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
	return call;
}

/** Length-prefixed messages that a stream sends in one write. */
export class MessageBatch {
	readonly chunks: readonly Uint8Array[];

	constructor(chunks: readonly Uint8Array[]) {
		this.chunks = chunks;
	}
}

/** Error kinds for the status codes with which grpc-js itself refuses calls. */
const REFUSALS: Readonly<Record<number, ErrorKind>> = {
	[status.RESOURCE_EXHAUSTED]: "too_large",
	[status.UNIMPLEMENTED]: "unsupported_media_type",
	[status.INTERNAL]: "invalid_argument",
	[status.INVALID_ARGUMENT]: "invalid_argument",
	[status.UNAVAILABLE]: "unavailable",
};

/**
 * A call with its HTTP/2 stream. The gate decides when the metadata arrives, before any message is read. The call is
 * observed from its beginning to its end, and the request id is sent with the response.
 *
 * A handler may write a {@link MessageBatch} in place of an encoded message. grpc-js copies each message for each call,
 * sends one at a time, and waits until it is written before it takes the next one. A batch goes to the stream in one
 * write instead: writes are most of the work when many streams send many messages, and the watches that send the same
 * record share its bytes.
 */
export class GrpcCall extends ServerInterceptingCall {
	readonly #path: string;
	readonly #context: CallContext;
	readonly #stream: ServerHttp2Stream;
	readonly #fields: readonly string[];
	readonly #maxBytes: number;
	#observed: ObservedRequest | undefined;
	#permit: Permit | undefined;
	/** Bytes that have arrived of the current request message, and what is reserved for it. */
	#arrived = 0;
	#reserved = 0;
	#leave: (() => void) | undefined;
	/** Whether the request id was sent with the response headers. */
	#idSent = false;
	#answered = false;
	#sending = false;
	/** Whether grpc-js wanted to read the next request message while a response message was being sent. */
	#readLater = false;
	/** Timer that ends the call if the client does not take the current message within `answerTime`. */
	#sendTimeout: NodeJS.Timeout | undefined;

	constructor(next: ServerInterceptingCallInterface, path: string, started: StartedStream, context: CallContext) {
		super(next);
		this.#path = path;
		this.#context = context;
		this.#stream = started.stream;
		this.#fields = started.fields;
		this.#maxBytes = isLarge(context.gate.scopeOf(path)) ? context.maxBodyBytes : context.limits.readRequestBytes;
		// A health watch is idle until the health changes.
		limitStream(started.stream, context.limits, path.startsWith("/grpc.health."));
		started.stream.once("close", () => clearTimeout(this.#sendTimeout));
	}

	override start(listener: Parameters<ServerInterceptingCallInterface["start"]>[0]): void {
		super.start({
			onReceiveMetadata: (metadata) => {
				const observed = this.#observe(metadata);
				try {
					this.#admit(metadata, observed);
				} catch (error) {
					this.#refuse(error);
					return;
				}
				listener.onReceiveMetadata(metadata);
			},
			onReceiveMessage: (message: unknown) => {
				const length = message instanceof Uint8Array ? message.length : 0;
				this.#permit?.giveBack(Math.max(0, this.#reserved - length));
				this.#arrived = 0;
				this.#reserved = 0;
				if (this.#answered) return;
				if (length > this.#maxBytes) return this.#refuse(tooLarge(this.#maxBytes));
				if (message instanceof Uint8Array && length > 0) this.#observed?.received(message);
				listener.onReceiveMessage(message);
			},
			onReceiveHalfClose: () => {
				if (!this.#answered) listener.onReceiveHalfClose();
			},
			// grpc-js calls this at the end of every call.
			onCancel: () => {
				this.#leave?.();
				const refusal = this.#refusal();
				if (refusal !== undefined) this.#observed?.failed(refusal);
				this.#observed?.end(this.#answered);
				listener.onCancel();
			},
		});
	}

	#observe(metadata: Metadata): ObservedRequest {
		const { socket } = this.#stream.session ?? {};
		const peer = socket && peerOf(socket);
		const target = { transport: "grpc", path: this.#path, route: this.#path } as const;
		const headerOf = (name: string) => metadata.get(name)[0]?.toString();
		this.#observed = this.#context.requests.begin(target, headerOf, () => peer);
		return this.#observed;
	}

	#admit(metadata: Metadata, observed: ObservedRequest): void {
		const { gate, admission, isStream } = this.#context;
		const path = this.#path;
		let permit: Permit;
		if (KEYLESS.test(path)) permit = admission.enter("keyless");
		else {
			const certificate = () => certificateName(this.getAuthContext().sslPeerCertificate);
			const caller = gate.admitRpc(path, this.#fields, certificate);
			observed.admitted(caller, gate.scopeOf(path));
			permit = admission.enter(workOf(gate.scopeOf(path), isStream.get(path) === true));
			ADMITTED.set(metadata, { caller, permit, observed });
		}
		this.#leave = permit.hold();
		this.#permit = permit;
		const stream = this.#stream;
		if (stream.closed) return;
		stream.once("close", permit.hold());
		const isCompressed = this.#fields.some(
			(name, n, fields) => n % 2 === 0 && name === "grpc-encoding" && fields[n + 1] !== "identity",
		);
		// Prepended, so that bytes are counted before grpc-js keeps them. It keeps none of a call that is over.
		let discarded = 0;
		stream.prependListener("data", (chunk: Buffer) => {
			try {
				if (!this.#answered) this.#count(chunk.byteLength, isCompressed);
				else discarded += chunk.byteLength;
			} catch (error) {
				this.#refuse(error);
			}
			if (discarded > DISCARDED_BYTES) stream.close(constants.NGHTTP2_NO_ERROR);
		});
	}

	/** Reserves room for bytes of a request message; for compressed ones the most that they can decompress to. */
	#count(bytes: number, isCompressed: boolean): void {
		this.#arrived += bytes;
		if (this.#arrived > PREFIX_BYTES + this.#maxBytes) throw tooLarge(this.#maxBytes);
		const most = isCompressed ? Math.min(this.#context.maxBodyBytes, this.#arrived * MAX_EXPANSION) : this.#arrived;
		this.#permit?.reserve(most - this.#reserved);
		this.#reserved = most;
	}

	#refuse(error: unknown): void {
		this.#observed?.failed(error);
		this.sendStatus(grpcStatus(error));
	}

	/** Why grpc-js itself has refused a call that is over, such as a message that decompresses to too much. */
	#refusal(): ServiceError | undefined {
		if (this.#answered) return undefined;
		const { sentHeaders, sentTrailers } = this.#stream;
		const kind = REFUSALS[Number(sentHeaders?.["grpc-status"] ?? sentTrailers?.["grpc-status"])];
		return kind && new ServiceError(kind, "grpc-js has refused the call");
	}

	override sendMetadata(metadata: Metadata): void {
		if (this.#observed !== undefined) metadata.set(REQUEST_ID_HEADER, this.#observed.id);
		this.#idSent = true;
		super.sendMetadata(metadata);
	}

	override sendStatus(sent: Parameters<ServerInterceptingCallInterface["sendStatus"]>[0]): void {
		this.#answered = true;
		const metadata = sent.metadata ?? new Metadata();
		// A response without headers before the status ("Trailers-Only" in gRPC over HTTP/2).
		if (!this.#idSent && this.#observed !== undefined) metadata.set(REQUEST_ID_HEADER, this.#observed.id);
		super.sendStatus({ ...sent, metadata });
	}

	/** Reads the next request message of a stream only when the client has taken the response to the one before. */
	override startRead(): void {
		if (this.#sending) this.#readLater = true;
		else super.startRead();
	}

	override sendMessage(message: unknown, callback: () => void): void {
		this.#sendTimeout = setTimeout(() => this.#stream.close(constants.NGHTTP2_CANCEL), this.#context.limits.answerTime);
		const onTaken = () => {
			clearTimeout(this.#sendTimeout);
			callback();
		};
		if (message instanceof MessageBatch) {
			this.#write(message.chunks, onTaken);
			return;
		}
		this.#sending = true;
		super.sendMessage(message, () => {
			this.#sending = false;
			onTaken();
			if (this.#readLater) super.startRead();
			this.#readLater = false;
		});
	}

	#write(chunks: readonly Uint8Array[], onTaken: () => void): void {
		const stream = this.#stream;
		if (!this.#idSent) this.sendMetadata(new Metadata());
		// The callback is not needed: a call whose stream has ended is cancelled, and its handler stops because of that.
		if (!stream.writable) return;
		stream.cork();
		for (const [index, chunk] of chunks.entries())
			stream.write(chunk, index === chunks.length - 1 ? onTaken : undefined);
		stream.uncork();
	}
}

/** Channel on which Node.js publishes each HTTP/2 stream of a server, before the server sees it. */
const STREAM_START = "http2.server.stream.start";

/** The stream of a call, with the names and values of its header fields in turn. */
interface StartedStream {
	readonly stream: ServerHttp2Stream;
	readonly fields: readonly string[];
}

/**
 * Finds the HTTP/2 streams of gRPC calls, because grpc-js has no access to them: it can neither count the bytes of a
 * message as they arrive, nor end a call whose client does not read. Calls of unknown methods, which reach no
 * interceptor, are reported to the observer of requests.
 */
export class GrpcStreams implements Disposable {
	readonly #started = new AsyncLocalStorage<StartedStream>();
	readonly #sessions = new WeakSet<Http2Session>();
	readonly #context: Pick<CallContext, "isStream" | "requests">;
	/** Port of the listener, because the channel reports the streams of all servers in the process. */
	#port: number | undefined;

	constructor(context: Pick<CallContext, "isStream" | "requests">) {
		this.#context = context;
	}

	/** Begins to follow the streams of the listener on a port, before its first connection. */
	follow(port: number): void {
		this.#port = port;
		subscribe(STREAM_START, this.#onStart);
	}

	/** Returns the stream of the call that begins. To be called by an interceptor when it gets the call. */
	current(): StartedStream {
		const started = this.#started.getStore();
		if (started === undefined) throw new TypeError(`there is no stream from ${STREAM_START}`);
		return started;
	}

	[Symbol.dispose](): void {
		unsubscribe(STREAM_START, this.#onStart);
	}

	readonly #onStart = (message: unknown): void => {
		if (!isStreamStart(message)) return;
		const { session } = message.stream;
		if (session === undefined || this.#sessions.has(session) || session.socket.localPort !== this.#port) return;
		this.#sessions.add(session);
		// The session emits a stream before the server gets it, in the same asynchronous context.
		session.prependListener("stream", this.#onStream);
	};

	readonly #onStream = (
		stream: ServerHttp2Stream,
		headers: IncomingHttpHeaders,
		_: number,
		fields: readonly string[],
	): void => {
		this.#started.enterWith({ stream, fields });
		const path = String(headers[":path"]);
		const { isStream, requests } = this.#context;
		if (isStream.has(path) || KEYLESS.test(path)) return;
		if (!/^application\/grpc(?!-web)/.test(headers["content-type"] ?? "")) return;
		const observed = requests.begin({ transport: "grpc", path }, (name) => headers[name]?.toString());
		observed.failed(new ServiceError("not_found", "There is no such method"));
		observed.end(true);
	};
}

function isStreamStart(message: unknown): message is { readonly stream: ServerHttp2Stream } {
	return typeof message === "object" && message !== null && "stream" in message && message.stream instanceof Duplex;
}

/** Maximum factor by which deflate data grows when it is decompressed (https://zlib.net/zlib_tech.html). */
const MAX_EXPANSION = 1032;

function tooLarge(maxBytes: number): ServiceError {
	return new ServiceError("too_large", `The request is larger than ${maxBytes} bytes`);
}

/**
 * Returns an error in the form that grpc-js sends: code, message, `retry-after` for a temporary error, and the details
 * in `grpc-status-details-bin`.
 */
export function grpcStatus(failure: unknown) {
	const { name, code, rawMessage: message, metadata: header, details } = toConnectError(failure);
	const metadata = new Metadata();
	const retryAfter = header.get("Retry-After");
	if (retryAfter !== null) metadata.set("retry-after", retryAfter);
	const packed = details.flatMap((one) => ("desc" in one ? anyPack(one.desc, create(one.desc, one.value)) : []));
	if (packed.length > 0) {
		const status = create(StatusSchema, { code, message, details: packed });
		metadata.set("grpc-status-details-bin", Buffer.from(toBinary(StatusSchema, status)));
	}
	return { name, message, code: Number(code), details: message, metadata };
}
