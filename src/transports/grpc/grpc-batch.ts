import { constants, type ServerHttp2Stream } from "node:http2";
import { Duplex } from "node:stream";
import {
	Metadata,
	ServerInterceptingCall,
	type ServerInterceptingCallInterface,
	type ServerInterceptor,
	status,
} from "@grpc/grpc-js";
import { type ErrorKind, ServiceError } from "../../errors.ts";
import type { Permit } from "../admission.ts";
import { DISCARDED_BYTES } from "../http/body.ts";
import { unpack } from "../http/unpack.ts";
import { PREFIX_BYTES } from "../length-prefixed.ts";
import { type Limits, limitStream } from "../limits.ts";
import { MessageCounter } from "./grpc-bytes.ts";
import { grpcStatus } from "./grpc-status.ts";

/** Length-prefixed messages that a stream sends in one write. */
export class MessageBatch {
	readonly chunks: readonly Uint8Array[];

	constructor(chunks: readonly Uint8Array[]) {
		this.chunks = chunks;
	}
}

/**
 * Returns an interceptor that lets handlers write a {@link MessageBatch} in place of an encoded message. It must be the
 * first interceptor of the server, the one next to the HTTP/2 stream.
 *
 * grpc-js sends one message at a time, and waits until it is written before it takes the next one. A batch goes to the
 * HTTP/2 stream in one write instead, because writes are most of the work when many streams send many messages. grpc-js
 * has no public access to the stream. If the stream is not found, the messages are sent one by one.
 *
 * @param maxBytes maximum number of bytes of a request message
 */
export function batchInterceptor(limits: Limits, maxBytes: number): ServerInterceptor {
	return ({ path }, call) => new BatchingCall(call, path, limits, maxBytes);
}

/** Error kinds for the status codes with which grpc-js itself refuses calls. */
const REFUSALS: Readonly<Record<number, ErrorKind>> = {
	[status.RESOURCE_EXHAUSTED]: "too_large",
	[status.UNIMPLEMENTED]: "unsupported_media_type",
	[status.INTERNAL]: "invalid_argument",
	[status.INVALID_ARGUMENT]: "invalid_argument",
	[status.UNAVAILABLE]: "unavailable",
};

/** A call with access to its HTTP/2 stream. If the stream is not found, `refusal` is undefined. */
export class BatchingCall extends ServerInterceptingCall {
	readonly #maxBytes: number;
	readonly #answerTime: number;
	readonly #next: ServerInterceptingCallInterface;
	readonly #stream: ServerHttp2Stream | undefined;
	/** Whether a batch was written, and the response headers before it. */
	#started = false;
	/** Whether the service has sent a status. */
	#answered = false;
	#sending = false;
	/** Whether grpc-js wanted to read the next request message while a response message was being sent. */
	#readLater = false;
	/** Timer that ends the call if the client does not take the current message within `answerTime`. */
	#sendTimeout: NodeJS.Timeout | undefined;

	constructor(next: ServerInterceptingCallInterface, path: string, limits: Limits, maxBytes: number) {
		super(next);
		this.#next = next;
		this.#maxBytes = maxBytes;
		this.#answerTime = limits.answerTime;
		this.#stream = "stream" in next && isHttp2Stream(next.stream) ? next.stream : undefined;
		// A health watch is idle until the health changes.
		if (this.#stream !== undefined) limitStream(this.#stream, limits, path.startsWith("/grpc.health."));
		this.#stream?.once("close", () => clearTimeout(this.#sendTimeout));
	}

	/** Why grpc-js itself has refused a call that is over, such as a message that is too large. Otherwise undefined. */
	get refusal(): ServiceError | undefined {
		if (this.#answered) return undefined;
		const { sentHeaders, sentTrailers } = this.#stream ?? {};
		const kind = REFUSALS[Number(sentHeaders?.["grpc-status"] ?? sentTrailers?.["grpc-status"])];
		return kind && new ServiceError(kind, "grpc-js has refused the call");
	}

	/**
	 * Counts the bytes of the messages that the client sends, and holds the permit until the stream has closed.
	 *
	 * @param refuse ends the call with the error that the permit has thrown
	 */
	count(permit: Permit, refuse: (error: unknown) => void): void {
		const stream = this.#stream;
		// Without an open stream, only the gate holds the permit, until the end of the call.
		if (stream === undefined || stream.closed) return;
		const reserve = (bytes: number): void => permit.reserve(bytes);
		stream.once("close", permit.hold());
		const counter = new MessageCounter(this.#maxBytes, reserve);
		// Prepended, so that bytes are counted before grpc-js keeps them. It keeps none of a call that is over.
		let discarded = 0;
		stream.prependListener("data", (chunk: Buffer) => {
			try {
				if (!this.#answered) counter.add(chunk);
				else discarded += chunk.byteLength;
			} catch (error) {
				refuse(error);
			}
			if (discarded > DISCARDED_BYTES) stream.close(constants.NGHTTP2_NO_ERROR);
		});
		this.#countDecompressed(reserve);
	}

	/** Replaces the decompression of grpc-js, which decompresses a whole message before its bytes can be counted. */
	#countDecompressed(reserve: (bytes: number) => void): void {
		const next = this.#next;
		if (!("decompressMessage" in next) || typeof next.decompressMessage !== "function") return;
		const { decompressMessage } = next;
		next.decompressMessage = async (message: Buffer, encoding: unknown): Promise<unknown> => {
			if (encoding !== "gzip" && encoding !== "deflate") return await decompressMessage.call(next, message, encoding);
			try {
				return await unpack(message.subarray(PREFIX_BYTES), encoding, this.#maxBytes, reserve);
			} catch (error) {
				throw grpcStatus(error);
			}
		};
	}

	override sendStatus(statusObject: Parameters<ServerInterceptingCallInterface["sendStatus"]>[0]): void {
		this.#answered = true;
		super.sendStatus(statusObject);
	}

	/** Reads the next request message of a stream only when the client has taken the response to the one before. */
	override startRead(): void {
		if (this.#sending) this.#readLater = true;
		else super.startRead();
	}

	override sendMessage(message: unknown, callback: () => void): void {
		const onTaken = (): void => {
			clearTimeout(this.#sendTimeout);
			callback();
		};
		this.#sendTimeout = setTimeout(() => this.#stream?.close(constants.NGHTTP2_CANCEL), this.#answerTime);
		if (!(message instanceof MessageBatch)) this.#send(message, onTaken);
		else if (this.#stream === undefined) throw new TypeError("grpc-js has no stream");
		else this.#write(this.#stream, message.chunks, onTaken);
	}

	#send(message: unknown, callback: () => void): void {
		this.#sending = true;
		super.sendMessage(message, () => {
			this.#sending = false;
			callback();
			if (this.#readLater) super.startRead();
			this.#readLater = false;
		});
	}

	#write(stream: ServerHttp2Stream, chunks: readonly Uint8Array[], callback: () => void): void {
		if (!this.#started) this.#next.sendMetadata(new Metadata());
		this.#started = true;
		// The callback is not needed: a call whose stream has ended is cancelled, and its handler stops because of that.
		if (!stream.writable) return;
		stream.cork();
		for (const [index, chunk] of chunks.entries())
			stream.write(chunk, index === chunks.length - 1 ? () => callback() : undefined);
		stream.uncork();
	}
}

function isHttp2Stream(value: unknown): value is ServerHttp2Stream {
	return value instanceof Duplex && "sentTrailers" in value;
}
