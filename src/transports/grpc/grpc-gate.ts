import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Http2Session, Http2Stream, IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { Duplex } from "node:stream";
import { Metadata, ServerInterceptingCall, type ServerInterceptor } from "@grpc/grpc-js";
import type { Gate } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import { ServiceError } from "../../errors.ts";
import { type ObservedRequest, REQUEST_ID_HEADER, type Requests } from "../../telemetry/requests.ts";
import { type Admission, type Permit, workOf } from "../admission.ts";
import { certificateName, peerOf } from "../connections.ts";
import type { Limits } from "../limits.ts";
import { grpcStatus, StreamCall, tooLarge } from "./grpc-call.ts";

/** Matches the methods that need no key: probes have none, and the schema is public. They reveal no conversation. */
export const KEYLESS = /^\/grpc\.(?:health\.v1\.Health|reflection\.v1(?:alpha)?\.ServerReflection)\//;

/** A call that the gate has let in. */
export interface AdmittedCall {
	readonly caller: Principal;
	readonly permit: Permit;
	readonly observed: ObservedRequest;
}

/** Returns the call that the gate has let in with this metadata. Undefined for a call without a key. */
export type FindAdmitted = (metadata: Metadata) => AdmittedCall | undefined;

/** Settings of {@link gateInterceptor}. */
interface GateInterceptorOptions {
	readonly gate: Gate;
	/** Counts the calls under way. */
	readonly admission: Pick<Admission, "enter">;
	/** Whether the method at a path returns a stream. */
	readonly isStream: (path: string) => boolean;
	/** Observes each call from its beginning to its end. */
	readonly requests: Requests;
	readonly limits: Limits;
	/** Maximum number of bytes of a request message of ingest, and of any message after decompression. */
	readonly maxBodyBytes: number;
	readonly streams: Pick<GrpcStreams, "current">;
	/** Called with the address and port of the client of each call. */
	readonly onCall: (peer: string) => void;
}

/**
 * Returns the gate as an interceptor of grpc-js. It decides when the metadata of a call arrives, before any message is
 * read. It also observes each call from its beginning to its end, and sends the request id with the response.
 */
export function gateInterceptor(options: GateInterceptorOptions): {
	interceptor: ServerInterceptor;
	findAdmitted: FindAdmitted;
} {
	const { gate, admission, isStream, requests, limits, maxBodyBytes, streams, onCall } = options;
	// A map, because grpc-js has no place on a call where a server can keep values.
	const calls = new WeakMap<Metadata, AdmittedCall>();
	const interceptor: ServerInterceptor = ({ path }, next) => {
		const isKeyless = KEYLESS.test(path);
		const { stream, fields } = streams.current();
		const call = new StreamCall(next, stream, path, limits);
		const maxBytes = gate.scopeOf(path) === "ingest" ? maxBodyBytes : limits.readRequestBytes;
		let observed: ObservedRequest | undefined;
		let answered = false;
		/** Ends the counting of the call. */
		let leave: (() => void) | undefined;
		/** Whether the request id was sent with the response headers. */
		let idSent = false;
		const admit = (metadata: Metadata, request: ObservedRequest): void => {
			let permit: Permit;
			if (isKeyless) permit = admission.enter("keyless");
			else {
				const certificate = () => certificateName(call.getAuthContext().sslPeerCertificate);
				const caller = gate.admitRpc(path, fields, certificate);
				request.admitted(caller, gate.scopeOf(path));
				permit = admission.enter(workOf(gate.scopeOf(path), isStream(path)));
				calls.set(metadata, { caller, permit, observed: request });
			}
			leave = permit.hold();
			call.count(permit, { maxBytes, maxDecompressed: maxBodyBytes }, (error) => refuse(request, error));
		};
		const refuse = (request: ObservedRequest, error: unknown): void => {
			request.failed(error);
			const status = grpcStatus(error);
			status.metadata.set(REQUEST_ID_HEADER, request.id);
			answered = true;
			call.sendStatus(status);
		};
		return new ServerInterceptingCall(call, {
			start: (next) =>
				next({
					onReceiveMetadata: (metadata, pass) => {
						const target = { transport: "grpc", path, route: path } as const;
						const headerOf = (name: string) => metadata.get(name)[0]?.toString();
						const { socket } = stream.session ?? {};
						const peer = socket && peerOf(socket);
						const request = requests.begin(target, headerOf, () => peer);
						observed = request;
						if (peer !== undefined) onCall(peer);
						try {
							admit(metadata, request);
						} catch (error) {
							refuse(request, error);
							return;
						}
						pass(metadata);
					},
					onReceiveMessage: (message: unknown, pass) => {
						const length = message instanceof Uint8Array ? message.length : 0;
						call.received(length);
						if (observed === undefined) return;
						if (length > maxBytes) refuse(observed, tooLarge(maxBytes));
						else {
							if (message instanceof Uint8Array && length > 0) observed.received(message);
							pass(message);
						}
					},
					// grpc-js calls this at the end of every call.
					onCancel: () => {
						leave?.();
						const { refusal } = call;
						if (refusal !== undefined) observed?.failed(refusal);
						observed?.end(answered);
					},
				}),
			sendMetadata: (metadata, pass) => {
				if (observed !== undefined) metadata.set(REQUEST_ID_HEADER, observed.id);
				idSent = true;
				pass(metadata);
			},
			sendStatus: (status, pass) => {
				answered = true;
				if (idSent || observed === undefined) return pass(status);
				// A response without headers before the status ("Trailers-Only" in gRPC over HTTP/2).
				const metadata = status.metadata ?? new Metadata();
				metadata.set(REQUEST_ID_HEADER, observed.id);
				pass({ ...status, metadata });
			},
		});
	};
	return { interceptor, findAdmitted: (metadata) => calls.get(metadata) };
}

/** Channel on which Node.js publishes each HTTP/2 stream of a server, before the server sees it. */
const STREAM_START = "http2.server.stream.start";

/** What Node.js publishes on the channel (https://nodejs.org/api/diagnostics_channel.html#http2). */
interface StreamStart {
	readonly stream: ServerHttp2Stream;
	readonly headers: IncomingHttpHeaders;
}

/** Settings of {@link GrpcStreams}. */
interface GrpcStreamsOptions {
	/** Whether there is a method at a path. */
	readonly isKnown: (path: string) => boolean;
	readonly requests: Requests;
}

/**
 * Finds the HTTP/2 streams of gRPC calls, because grpc-js has no access to them: it can neither count the bytes of a
 * message as they arrive, nor end a call whose client does not read. Calls of unknown methods, which reach no
 * interceptor, are reported to `requests`.
 */
export class GrpcStreams implements Disposable {
	readonly #started = new AsyncLocalStorage<ServerHttp2Stream>();
	/** Sessions whose streams are put into {@link #fields}. */
	readonly #sessions = new WeakSet<Http2Session>();
	readonly #fields = new WeakMap<Http2Stream, readonly string[]>();
	readonly #options: GrpcStreamsOptions;
	/** Port of the listener, because the channel reports the streams of all servers in the process. */
	#port: number | undefined;

	constructor(options: GrpcStreamsOptions) {
		this.#options = options;
	}

	/** Begins to follow the streams of the listener on a port, before its first connection. */
	follow(port: number): void {
		this.#port = port;
		subscribe(STREAM_START, this.#onStart);
	}

	/**
	 * Returns the stream of the call that begins, with the names and values of its header fields in turn. To be called by
	 * an interceptor when it gets the call.
	 *
	 * @throws TypeError when Node.js has not published the stream
	 */
	current(): { readonly stream: ServerHttp2Stream; readonly fields: readonly string[] } {
		const stream = this.#started.getStore();
		const fields = stream && this.#fields.get(stream);
		if (stream === undefined || fields === undefined) throw new TypeError(`there is no stream from ${STREAM_START}`);
		return { stream, fields };
	}

	[Symbol.dispose](): void {
		unsubscribe(STREAM_START, this.#onStart);
	}

	readonly #onStart = (message: unknown): void => {
		if (!isStreamStart(message) || !/^application\/grpc(?!-web)/.test(message.headers["content-type"] ?? "")) return;
		const { stream, headers } = message;
		const { isKnown, requests } = this.#options;
		// The server gets the stream later in this asynchronous context.
		this.#started.enterWith(stream);
		this.#followFields(stream.session);
		const path = String(headers[":path"]);
		if (isKnown(path) || stream.session?.socket.localPort !== this.#port) return;
		const observed = requests.begin({ transport: "grpc", path }, (name) => headers[name]?.toString());
		observed.failed(new ServiceError("not_found", "There is no such method"));
		observed.end(true);
	};

	/** Keeps the header fields of a session's streams, which it emits before the server gets them. */
	#followFields(session: Http2Session | undefined): void {
		if (session === undefined || this.#sessions.has(session)) return;
		this.#sessions.add(session);
		const keep = (stream: Http2Stream, _: IncomingHttpHeaders, __: number, fields: readonly string[]) =>
			this.#fields.set(stream, fields);
		session.prependListener("stream", keep);
	}
}

function isStreamStart(message: unknown): message is StreamStart {
	if (typeof message !== "object" || message === null) return false;
	if (!("stream" in message && "headers" in message)) return false;
	return message.stream instanceof Duplex && typeof message.headers === "object" && message.headers !== null;
}
