const INITIAL_BYTES = 64 * 1024;
/** Maximum size of a buffer that is reused for the next message. A large message can make the buffer grow beyond it. */
const MAX_REUSED_BYTES = 1024 * 1024;
/** Maximum length of a string whose characters are copied one by one, which is faster than a call into native code. */
const MAX_COPIED_LENGTH = 128;

/**
 * Writes the protobuf wire format (protobuf encoding, "Message Structure") from the last byte to the first, because the
 * length precedes a value but is known only after the value is written. All messages share one buffer.
 */
export class Writer {
	/** Number of bytes written so far. They are at the end of the buffer. */
	position = 0;
	#buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);

	/** Begins a message. */
	start(): void {
		this.position = 0;
	}

	/** Returns a copy of the written bytes. */
	take(): Uint8Array {
		// Not from the pool of Node.js, so that the bytes have their own ArrayBuffer, which can be transferred to another
		// thread.
		const bytes = Buffer.allocUnsafeSlow(this.position);
		this.#buffer.copy(bytes, 0, this.#buffer.length - this.position);
		if (this.#buffer.length > MAX_REUSED_BYTES) this.#buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);
		return bytes;
	}

	/** @param value a tag, a length, a 32-bit integer, a boolean as 0 or 1, or the number of an enum value */
	varint(value: number): void {
		if (value < 0 || value > 0x7fff_ffff) {
			this.bigVarint(BigInt(value));
			return;
		}
		const at = this.#reserve(varintSize(value));
		let rest = value;
		let index = at;
		while (rest > 0x7f) {
			this.#buffer[index++] = (rest & 0x7f) | 0x80;
			rest >>>= 7;
		}
		this.#buffer[index] = rest;
	}

	/** Writes a 64-bit integer, in two's complement when it is negative. */
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
		// Called before the buffer is read, because it can replace the buffer.
		const at = this.#reserve(bytes.length);
		this.#buffer.set(bytes, at);
	}

	double(value: number): void {
		const at = this.#reserve(8);
		this.#buffer.writeDoubleLE(value, at);
	}

	/** Writes a string, preceded by its length. */
	string(value: string): void {
		const { length } = value;
		const end = this.position;
		if (length > MAX_COPIED_LENGTH || !this.#putAscii(value, this.#reserve(length))) {
			this.position = end;
			const at = this.#reserve(Buffer.byteLength(value));
			this.#buffer.write(value, at);
		}
		this.length(end);
	}

	/** Writes the length of the bytes written since `position` was `end`. */
	length(end: number): void {
		this.varint(this.position - end);
	}

	/** Writes an ASCII string from index `at` on. Returns false when it meets another character. */
	#putAscii(value: string, at: number): boolean {
		const buffer = this.#buffer;
		for (let index = 0; index < value.length; index++) {
			const unit = value.charCodeAt(index);
			if (unit > 0x7f) return false;
			buffer[at + index] = unit;
		}
		return true;
	}

	/** Reserves space for `bytes` bytes; returns the index of the first. */
	#reserve(bytes: number): number {
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

/** Returns the number of bytes of a varint up to 2^31 - 1. */
function varintSize(value: number): number {
	if (value < 0x80) return 1;
	if (value < 0x4000) return 2;
	if (value < 0x20_0000) return 3;
	return value < 0x1000_0000 ? 4 : 5;
}
