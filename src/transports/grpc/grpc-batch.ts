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
import { DISCARDED_BYTES } from "../http/body.ts";
import { unpack } from "../http/unpack.ts";
import { type Limits, limitStream } from "../limits.ts";
import type { Permit } from "../permits.ts";
import { readingOf, type SessionReading } from "../session-reading.ts";
import { MessageCounter, PREFIX_BYTES } from "./grpc-bytes.ts";
import { grpcStatus } from "./grpc-status.ts";

/** Encoded messages that a stream sends with one write. */
export class MessageBatch {
	readonly messages: readonly Uint8Array[];

	constructor(messages: readonly Uint8Array[]) {
		this.messages = messages;
	}
}

/** From this size on, in bytes, a message is a chunk of its own: that costs less than a copy. */
const OWN_CHUNK = 16 * 1024;

/**
 * Length-prefixed messages (gRPC over HTTP/2, "Requests": compressed-flag, length, message), not compressed.
 *
 * @returns what to send, in few chunks
 */
export function lengthPrefixed(messages: readonly Uint8Array[]): Uint8Array[] {
	const chunks: Uint8Array[] = [];
	let gathered: Uint8Array[] = [];
	const flush = () => {
		if (gathered.length > 0) chunks.push(Buffer.concat(gathered));
		gathered = [];
	};
	for (const message of messages) {
		const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
		prefix[0] = 0;
		prefix.writeUInt32BE(message.byteLength, 1);
		gathered.push(prefix);
		if (message.byteLength >= OWN_CHUNK) {
			flush();
			chunks.push(message);
		} else gathered.push(message);
	}
	flush();
	return chunks;
}

/**
 * Lets handlers write a {@link MessageBatch} in place of an encoded message. It must be the first interceptor of the
 * server, the one next to the HTTP/2 stream.
 *
 * grpc-js sends one message at a time and waits until it is written before it takes the next. A batch goes to the
 * HTTP/2 stream with one write instead, which is most of the work when many streams send many messages. grpc-js does
 * not offer the stream. Where it cannot be found, the messages are sent one by one.
 *
 * @param maxBytes most bytes of a request message
 */
export function batchInterceptor(limits: Limits, maxBytes: number): ServerInterceptor {
	return ({ path }, call) => new BatchingCall(call, path, limits, maxBytes);
}

/** Kinds of the failures with which grpc-js itself ends calls. */
const REFUSALS: Readonly<Record<number, ErrorKind>> = {
	[status.RESOURCE_EXHAUSTED]: "too_large",
	[status.UNIMPLEMENTED]: "unsupported_media_type",
	[status.INTERNAL]: "invalid_argument",
	[status.INVALID_ARGUMENT]: "invalid_argument",
	[status.UNAVAILABLE]: "unavailable",
};

/** A call next to its HTTP/2 stream. Where the stream cannot be found, what the call tells of it is undefined. */
export class BatchingCall extends ServerInterceptingCall {
	readonly #maxBytes: number;
	readonly #answerTime: number;
	readonly #next: ServerInterceptingCallInterface;
	readonly #stream: ServerHttp2Stream | undefined;
	#started = false;
	#answered = false;
	#sending = false;
	#readLater = false;
	/** Ends the call when the client does not take a message in time. There is one message at a time. */
	#late: NodeJS.Timeout | undefined;

	constructor(next: ServerInterceptingCallInterface, path: string, limits: Limits, maxBytes: number) {
		super(next);
		this.#next = next;
		this.#maxBytes = maxBytes;
		this.#answerTime = limits.answerTime;
		this.#stream = "stream" in next && isHttp2Stream(next.stream) ? next.stream : undefined;
		// A watch of the health rests until the health changes.
		if (this.#stream !== undefined) limitStream(this.#stream, limits, path.startsWith("/grpc.health."));
		this.#stream?.once("close", () => clearTimeout(this.#late));
	}

	/** Why grpc-js itself has refused a call that is over, such as for a message that is too large; else undefined. */
	get refusal(): ServiceError | undefined {
		if (this.#answered) return undefined;
		const { sentHeaders, sentTrailers } = this.#stream ?? {};
		const kind = REFUSALS[Number(sentHeaders?.["grpc-status"] ?? sentTrailers?.["grpc-status"])];
		return kind && new ServiceError(kind, "grpc-js has refused the call");
	}

	/** How the connection of the call is read. */
	get reading(): SessionReading | undefined {
		const session = this.#stream?.session;
		return session === undefined ? undefined : readingOf(session);
	}

	/** Ends the stream of a call that has its answer: what has arrived of its message is freed. */
	end(): void {
		this.#stream?.close(constants.NGHTTP2_NO_ERROR);
	}

	/**
	 * Counts the messages that the client sends, and holds the call in the count until its stream has closed.
	 *
	 * @param refuse ends the call with an error that counting has thrown
	 */
	count(permit: Permit, refuse: (error: unknown) => void): void {
		const stream = this.#stream;
		// Where there is no stream, or it has closed already, the call counts until its end.
		if (stream === undefined || stream.closed) return;
		const take = (bytes: number): void => permit.take(bytes);
		stream.once("close", permit.hold());
		this.reading?.receives(stream);
		const counter = new MessageCounter(this.#maxBytes, take);
		// Before grpc-js, which keeps what arrives. Of a call that is over it keeps nothing.
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
		this.#unpackCounted(take);
	}

	/** grpc-js unpacks a message to its largest size before anybody can count it. */
	#unpackCounted(take: (bytes: number) => void): void {
		const next = this.#next;
		if (!("decompressMessage" in next) || typeof next.decompressMessage !== "function") return;
		const { decompressMessage } = next;
		next.decompressMessage = async (message: Buffer, encoding: unknown): Promise<unknown> => {
			if (encoding !== "gzip" && encoding !== "deflate") return await decompressMessage.call(next, message, encoding);
			try {
				return await unpack(message.subarray(PREFIX_BYTES), encoding, this.#maxBytes, take);
			} catch (error) {
				throw grpcStatus(error);
			}
		};
	}

	override sendStatus(given: Parameters<ServerInterceptingCallInterface["sendStatus"]>[0]): void {
		this.#answered = true;
		super.sendStatus(given);
	}

	/** Takes no further request of a stream until the client has taken the answer to the one before. */
	override startRead(): void {
		if (this.#sending) this.#readLater = true;
		else super.startRead();
	}

	override sendMessage(message: unknown, callback: () => void): void {
		const taken = (): void => {
			clearTimeout(this.#late);
			callback();
		};
		this.#late = setTimeout(() => this.#stream?.close(constants.NGHTTP2_CANCEL), this.#answerTime);
		if (!(message instanceof MessageBatch)) this.#send(message, taken);
		else if (this.#stream === undefined) this.#sendSingly(message.messages, taken);
		else this.#write(this.#stream, lengthPrefixed(message.messages), taken);
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
		// A call whose stream has ended is cancelled, and its handler learns it from that.
		if (!stream.writable) return;
		stream.cork();
		for (const [index, chunk] of chunks.entries())
			stream.write(chunk, index === chunks.length - 1 ? () => callback() : undefined);
		stream.uncork();
	}

	#sendSingly(messages: readonly Uint8Array[], callback: () => void): void {
		let outstanding = messages.length;
		for (const message of messages)
			this.#next.sendMessage(message, () => {
				outstanding -= 1;
				if (outstanding === 0) callback();
			});
	}
}

function isHttp2Stream(value: unknown): value is ServerHttp2Stream {
	return value instanceof Duplex && "sentTrailers" in value;
}
