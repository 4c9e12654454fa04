const INITIAL_BYTES = 64 * 1024;
/** A buffer that one large message made larger than this is not kept for the next. */
const KEPT_BYTES = 1024 * 1024;
/** Longest string whose characters are copied one by one, which is faster than a call out of JavaScript. */
const SHORT_STRING = 128;

/**
 * Writes the protobuf wire format (protobuf encoding, "Message Structure"). It writes from the last byte to the first: the
 * length of a value stands in front of it, and is known once the value is written. The buffer serves all messages.
 */
export class Writer {
	/** Number of bytes written so far; they stand at the end of the buffer. */
	position = 0;
	#buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);

	/** Begins a message. */
	start(): void {
		this.position = 0;
	}

	/** The bytes written. */
	take(): Uint8Array {
		// Not from Node's pool, so that the bytes have an ArrayBuffer of their own, which can cross to another thread.
		const bytes = Buffer.allocUnsafeSlow(this.position);
		this.#buffer.copy(bytes, 0, this.#buffer.length - this.position);
		if (this.#buffer.length > KEPT_BYTES) this.#buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);
		return bytes;
	}

	/** @param value a tag, a length, or the number of an enum value */
	varint(value: number): void {
		if (value < 0 || value > 0x7fff_ffff) {
			this.bigVarint(BigInt(value));
			return;
		}
		const at = this.#claim(varintSize(value));
		let rest = value;
		let index = at;
		while (rest > 0x7f) {
			this.#buffer[index++] = (rest & 0x7f) | 0x80;
			rest >>>= 7;
		}
		this.#buffer[index] = rest;
	}

	/** Writes a 64-bit integer; a negative one in two's complement. */
	bigVarint(value: bigint): void {
		if (value >= 0n && value <= 0x7fff_ffffn) {
			this.varint(Number(value));
			return;
		}
		const bytes: number[] = [];
		let rest = BigInt.asUintN(64, value);
		while (rest > 0x7fn) {
			bytes.push(Number(rest & 0x7fn) | 0x80);
			rest >>= 7n;
		}
		bytes.push(Number(rest));
		// Claimed first, because that can replace the buffer.
		const at = this.#claim(bytes.length);
		this.#buffer.set(bytes, at);
	}

	/** Writes a double. */
	double(value: number): void {
		const at = this.#claim(8);
		this.#buffer.writeDoubleLE(value, at);
	}

	/** Writes a string with its length. */
	string(value: string): void {
		const { length } = value;
		const end = this.position;
		if (length > SHORT_STRING || !this.#putAscii(value, this.#claim(length))) {
			this.position = end;
			const at = this.#claim(Buffer.byteLength(value));
			this.#buffer.write(value, at);
		}
		this.length(end);
	}

	/** Puts the length of what was written since `end` in front of it. */
	length(end: number): void {
		this.varint(this.position - end);
	}

	#putAscii(value: string, at: number): boolean {
		const buffer = this.#buffer;
		for (let index = 0; index < value.length; index++) {
			const unit = value.charCodeAt(index);
			if (unit > 0x7f) return false;
			buffer[at + index] = unit;
		}
		return true;
	}

	/** Makes room for some bytes; returns the index of the first. */
	#claim(bytes: number): number {
		this.position += bytes;
		if (this.position > this.#buffer.length) {
			const written = this.position - bytes;
			const larger = Buffer.allocUnsafeSlow(Math.max(this.position, this.#buffer.length * 2));
			this.#buffer.copy(larger, larger.length - written, this.#buffer.length - written);
			this.#buffer = larger;
		}
		return this.#buffer.length - this.position;
	}
}

/** Bytes of a number up to 2^31 - 1 as a varint. */
function varintSize(value: number): number {
	if (value < 0x80) return 1;
	if (value < 0x4000) return 2;
	if (value < 0x20_0000) return 3;
	return value < 0x1000_0000 ? 4 : 5;
}
