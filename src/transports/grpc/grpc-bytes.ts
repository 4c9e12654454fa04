import type { ReserveBytes } from "../http/body.ts";
import { PREFIX_BYTES } from "../length-prefixed.ts";

/** Finds the messages in the bytes of a call, and calls `reserve` with the size of each when its length has arrived. */
export class MessageCounter {
	readonly #maxBytes: number;
	readonly #reserve: ReserveBytes;
	readonly #prefix = Buffer.alloc(PREFIX_BYTES);
	/** Bytes of the prefix that have arrived. */
	#inPrefix = 0;
	/** Bytes of the message that have not arrived yet. */
	#left = 0;

	/** @param maxBytes maximum length of a message. Longer ones are not counted, because grpc-js refuses them */
	constructor(maxBytes: number, reserve: ReserveBytes) {
		this.#maxBytes = maxBytes;
		this.#reserve = reserve;
	}

	/** @throws the error that `reserve` throws */
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
			if (this.#left <= this.#maxBytes) this.#reserve(this.#left);
		}
	}
}
