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
	readonly bytes: Buffer;

	constructor(messages: readonly Message[], bytes: Buffer) {
		this.messages = messages;
		this.bytes = bytes;
	}
}

/** A length-prefixed message (gRPC over HTTP/2, "Requests": compressed-flag, length, message), not compressed. */
export function lengthPrefixed(messages: readonly Uint8Array[]): Buffer {
	const size = messages.reduce((sum, message) => sum + 5 + message.byteLength, 0);
	const bytes = Buffer.allocUnsafe(size);
	let offset = 0;
	for (const message of messages) {
		bytes[offset] = 0;
		offset = bytes.writeUInt32BE(message.byteLength, offset + 1);
		bytes.set(message, offset);
		offset += message.byteLength;
	}
	return bytes;
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
		else this.#write(this.#stream, message.bytes, callback);
	}

	#write(stream: Duplex, bytes: Buffer, callback: () => void): void {
		if (!this.#started) this.#next.sendMetadata(new Metadata());
		this.#started = true;
		// The call hears of a stream that has ended by its cancellation.
		if (stream.writable) stream.write(bytes, () => callback());
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
