import type { TakeBytes } from "../http/body.ts";

/** Bytes before each message: a flag that tells whether it is compressed, and its length (gRPC over HTTP/2). */
export const PREFIX_BYTES = 5;

/** Counts messages in the bytes of a call, each as a whole when its length has arrived. */
export class MessageCounter {
	readonly #maxBytes: number;
	readonly #take: TakeBytes;
	readonly #prefix = Buffer.alloc(PREFIX_BYTES);
	#inPrefix = 0;
	#left = 0;

	/** @param maxBytes length from which messages are refused by grpc-js; they are not counted */
	constructor(maxBytes: number, take: TakeBytes) {
		this.#maxBytes = maxBytes;
		this.#take = take;
	}

	/** @throws what `take` throws */
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
			if (this.#left <= this.#maxBytes) this.#take(this.#left);
		}
	}
}
