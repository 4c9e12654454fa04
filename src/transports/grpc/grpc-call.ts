import { constants, type ServerHttp2Stream } from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata, ServerInterceptingCall, type ServerInterceptingCallInterface, status } from "@grpc/grpc-js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { type ErrorKind, ServiceError } from "../../errors.ts";
import { toConnectError } from "../../rpc/rpc-errors.ts";
import type { Permit } from "../admission.ts";
import { DISCARDED_BYTES } from "../http/body.ts";
import { type Limits, limitStream } from "../limits.ts";
import { PREFIX_BYTES } from "../stream-messages.ts";

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
 * A call with its HTTP/2 stream. Its handler may write a {@link MessageBatch} in place of an encoded message.
 *
 * grpc-js copies each message for each call, sends one at a time, and waits until it is written before it takes the next
 * one. A batch goes to the stream in one write instead: writes are most of the work when many streams send many
 * messages, and the watches that send the same record share its bytes.
 */
export class StreamCall extends ServerInterceptingCall {
	readonly #answerTime: number;
	readonly #next: ServerInterceptingCallInterface;
	readonly #stream: ServerHttp2Stream;
	/** Counts the bytes of request messages, once the call is admitted. */
	#counter: MessageCounter | undefined;
	/** Whether a batch was written, and the response headers before it. */
	#started = false;
	/** Whether the service has sent a status. */
	#answered = false;
	#sending = false;
	/** Whether grpc-js wanted to read the next request message while a response message was being sent. */
	#readLater = false;
	/** Timer that ends the call if the client does not take the current message within `answerTime`. */
	#sendTimeout: NodeJS.Timeout | undefined;

	/** @param path method of the call */
	constructor(next: ServerInterceptingCallInterface, stream: ServerHttp2Stream, path: string, limits: Limits) {
		super(next);
		this.#next = next;
		this.#answerTime = limits.answerTime;
		this.#stream = stream;
		// A health watch is idle until the health changes.
		limitStream(stream, limits, path.startsWith("/grpc.health."));
		stream.once("close", () => clearTimeout(this.#sendTimeout));
	}

	/** Why grpc-js itself has refused a call that is over, such as a message that decompresses to too much. Otherwise undefined. */
	get refusal(): ServiceError | undefined {
		if (this.#answered) return undefined;
		const { sentHeaders, sentTrailers } = this.#stream;
		const kind = REFUSALS[Number(sentHeaders?.["grpc-status"] ?? sentTrailers?.["grpc-status"])];
		return kind && new ServiceError(kind, "grpc-js has refused the call");
	}

	/**
	 * Counts the bytes of the messages that the client sends, and holds the permit until the stream has closed.
	 *
	 * @param refuse ends the call with the error of a message that is too large, or that the permit has thrown
	 */
	count(permit: Permit, limits: MessageLimits, refuse: (error: unknown) => void): void {
		const stream = this.#stream;
		// The gate holds the permit, too, until the end of the call.
		if (stream.closed) return;
		stream.once("close", permit.hold());
		const counter = new MessageCounter(limits, permit);
		this.#counter = counter;
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
	}

	/** Notes that a message has arrived as a whole, of which the service keeps some bytes. */
	received(kept: number): void {
		this.#counter?.received(kept);
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
		this.#sendTimeout = setTimeout(() => this.#stream.close(constants.NGHTTP2_CANCEL), this.#answerTime);
		if (!(message instanceof MessageBatch)) this.#send(message, onTaken);
		else this.#write(message.chunks, onTaken);
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

	#write(chunks: readonly Uint8Array[], callback: () => void): void {
		const stream = this.#stream;
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

/** Maximum factor by which deflate data grows when it is decompressed (https://zlib.net/zlib_tech.html). */
const MAX_EXPANSION = 1032;

/** Maximum numbers of bytes of a request message. */
interface MessageLimits {
	/** As it is sent. */
	readonly maxBytes: number;
	/** After decompression: what grpc-js allows for each method. */
	readonly maxDecompressed: number;
}

/**
 * Finds the messages in the bytes of a call, and reserves the size of each when its length has arrived. For a compressed
 * message it reserves the most that it can decompress to.
 */
class MessageCounter {
	readonly #limits: MessageLimits;
	readonly #permit: Pick<Permit, "reserve" | "giveBack">;
	readonly #prefix = Buffer.alloc(PREFIX_BYTES);
	/** Bytes of the prefix that have arrived. */
	#inPrefix = 0;
	/** Bytes of the message that have not arrived yet. */
	#left = 0;
	/** What is reserved for each message that has not been received as a whole. */
	readonly #reserved: number[] = [];

	constructor(limits: MessageLimits, permit: Pick<Permit, "reserve" | "giveBack">) {
		this.#limits = limits;
		this.#permit = permit;
	}

	/** @throws ServiceError `too_large`, or the error that the permit throws */
	add(chunk: Buffer): void {
		for (let at = 0; at < chunk.length; ) {
			if (this.#left > 0) {
				const part = Math.min(this.#left, chunk.length - at);
				this.#left -= part;
				at += part;
				continue;
			}
			const copied = chunk.copy(this.#prefix, this.#inPrefix, at);
			this.#inPrefix += copied;
			at += copied;
			if (this.#inPrefix < PREFIX_BYTES) return;
			this.#inPrefix = 0;
			this.#left = this.#prefix.readUInt32BE(1);
			const { maxBytes, maxDecompressed } = this.#limits;
			if (this.#left > maxBytes) throw tooLarge(maxBytes);
			const bytes = this.#prefix[0] === 0 ? this.#left : Math.min(maxDecompressed, this.#left * MAX_EXPANSION);
			this.#permit.reserve(bytes);
			this.#reserved.push(bytes);
		}
	}

	/**
	 * Gives back what was reserved for the next message beyond what is kept of it.
	 *
	 * @param kept bytes of the message, after decompression, that are kept until the end of the call
	 */
	received(kept: number): void {
		const reserved = this.#reserved.shift() ?? 0;
		if (reserved > kept) this.#permit.giveBack(reserved - kept);
	}
}

/** Returns the refusal of a request message of more than `maxBytes`. */
export function tooLarge(maxBytes: number): ServiceError {
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
