import { Duplex } from "node:stream";
import type { Message } from "@bufbuild/protobuf";
import {
	Metadata,
	ServerInterceptingCall,
	type ServerInterceptingCallInterface,
	type ServerInterceptor,
} from "@grpc/grpc-js";

/** Responses that a stream sends with one write. */
export class ResponseBatch {
	readonly messages: readonly Message[];
	/** All of them as they go over the wire, each with its prefix. */
	readonly chunks: readonly Uint8Array[];

	constructor(messages: readonly Message[], chunks: readonly Uint8Array[]) {
		this.messages = messages;
		this.chunks = chunks;
	}
}

const PREFIX_BYTES = 5;
/** From this size on, in bytes, a chunk of its own costs less than a copy. */
const OWN_CHUNK = 16 * 1024;

/**
 * Length-prefixed messages (gRPC over HTTP/2, "Requests": compressed-flag, length, message), not compressed.
 *
 * @param messages the parts of each encoded message
 * @returns what to send, in few chunks; large parts are chunks as they are
 */
export function lengthPrefixed(messages: readonly (readonly Uint8Array[])[]): Uint8Array[] {
	const chunks: Uint8Array[] = [];
	let gathered: Uint8Array[] = [];
	const flush = () => {
		if (gathered.length > 0) chunks.push(Buffer.concat(gathered));
		gathered = [];
	};
	for (const parts of messages) {
		const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
		prefix[0] = 0;
		prefix.writeUInt32BE(sizeOf(parts), 1);
		gathered.push(prefix);
		for (const part of parts) {
			if (part.byteLength >= OWN_CHUNK) {
				flush();
				chunks.push(part);
			} else gathered.push(part);
		}
	}
	flush();
	return chunks;
}

function sizeOf(parts: readonly Uint8Array[]): number {
	return parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

/**
 * Lets handlers write a {@link ResponseBatch} in place of a response. It has to be the first interceptor of the server,
 * the one next to the stream.
 *
 * grpc-js sends one message at a time: it encodes it for this stream and waits until it is written before it takes the
 * next. With many streams that send the same, nearly all the work is in that, so a batch goes to the HTTP/2 stream as
 * bytes. grpc-js does not offer the stream; where it cannot be found the messages are sent one by one.
 */
export const batchInterceptor: ServerInterceptor = (_, call) => new BatchingCall(call);

class BatchingCall extends ServerInterceptingCall {
	readonly #next: ServerInterceptingCallInterface;
	readonly #stream: Duplex | undefined;
	#started = false;

	constructor(next: ServerInterceptingCallInterface) {
		super(next);
		this.#next = next;
		this.#stream = "stream" in next && next.stream instanceof Duplex ? next.stream : undefined;
	}

	override sendMessage(message: unknown, callback: () => void): void {
		if (!(message instanceof ResponseBatch)) super.sendMessage(message, callback);
		else if (this.#stream === undefined) this.#sendSingly(message.messages, callback);
		else this.#write(this.#stream, message.chunks, callback);
	}

	#write(stream: Duplex, chunks: readonly Uint8Array[], callback: () => void): void {
		if (!this.#started) this.#next.sendMetadata(new Metadata());
		this.#started = true;
		// The call hears of a stream that has ended by its cancellation.
		if (!stream.writable) return;
		stream.cork();
		for (const [index, chunk] of chunks.entries())
			stream.write(chunk, index === chunks.length - 1 ? () => callback() : undefined);
		stream.uncork();
	}

	#sendSingly(messages: readonly Message[], callback: () => void): void {
		let outstanding = messages.length;
		for (const message of messages)
			this.#next.sendMessage(message, () => {
				outstanding -= 1;
				if (outstanding === 0) callback();
			});
	}
}
