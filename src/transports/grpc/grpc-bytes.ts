import { ServiceError } from "../../errors.ts";
import { PREFIX_BYTES } from "../length-prefixed.ts";

/** Maximum factor by which deflate data grows when it is decompressed (https://zlib.net/zlib_tech.html). */
const MAX_EXPANSION = 1032;

/** Keeps bytes for a call, such as a permit. */
export interface Reservation {
	/** Throws to refuse the bytes. */
	reserve(bytes: number): void;
	giveBack(bytes: number): void;
}

/** Maximum numbers of bytes of a request message. */
export interface MessageLimits {
	/** As it is sent. */
	readonly maxBytes: number;
	/** After decompression: what grpc-js allows for each method. */
	readonly maxDecompressed: number;
}

/**
 * Finds the messages in the bytes of a call, and reserves the size of each when its length has arrived. For a compressed
 * message it reserves the most that it can decompress to.
 */
export class MessageCounter {
	readonly #limits: MessageLimits;
	readonly #reservation: Reservation;
	readonly #prefix = Buffer.alloc(PREFIX_BYTES);
	/** Bytes of the prefix that have arrived. */
	#inPrefix = 0;
	/** Bytes of the message that have not arrived yet. */
	#left = 0;
	/** What is reserved for each message that has not been received as a whole. */
	readonly #reserved: number[] = [];

	constructor(limits: MessageLimits, reservation: Reservation) {
		this.#limits = limits;
		this.#reservation = reservation;
	}

	/** @throws ServiceError `too_large`, or the error that the reservation throws */
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
			this.#reservation.reserve(bytes);
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
		if (reserved > kept) this.#reservation.giveBack(reserved - kept);
	}
}

/** Returns the refusal of a request message of more than `maxBytes`. */
export function tooLarge(maxBytes: number): ServiceError {
	return new ServiceError("too_large", `The request is larger than ${maxBytes} bytes`);
}
