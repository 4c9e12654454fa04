import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Http2Session, Http2Stream, IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { Duplex } from "node:stream";
import { ServiceError } from "../../errors.ts";
import type { Requests } from "../../telemetry/requests.ts";

/** Channel on which Node.js publishes each HTTP/2 stream of a server, before the server sees it. */
const STREAM_START = "http2.server.stream.start";

/** What Node.js publishes on the channel (https://nodejs.org/api/diagnostics_channel.html#http2). */
interface StreamStart {
	readonly stream: ServerHttp2Stream;
	readonly headers: IncomingHttpHeaders;
}

/** Settings of {@link GrpcStreams}. */
export interface GrpcStreamsOptions {
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
		const observed = requests.begin("grpc", { transport: "grpc", operation: path }, (name) =>
			headers[name]?.toString(),
		);
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
