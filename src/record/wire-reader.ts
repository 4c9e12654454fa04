import { isAscii, isUtf8 } from "node:buffer";

/** Thrown at bytes that encoders do not usually write. */
export const UNUSUAL = new Error("not the usual encoding");

/** Reads the protobuf wire format. Whatever would end outside of the bytes is unusual. */
export class Reader {
	position = 0;
	readonly #bytes: Buffer;

	constructor(bytes: Uint8Array) {
		this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	}

	/** A varint up to 2^53 - 1. */
	varint(): number {
		const bytes = this.#bytes;
		let value = 0;
		let factor = 1;
		for (let count = 0; count < 8; count++) {
			const byte = bytes[this.position++];
			if (byte === undefined) throw UNUSUAL;
			value += (byte & 0x7f) * factor;
			if (byte < 0x80) {
				if (value > Number.MAX_SAFE_INTEGER) throw UNUSUAL;
				return value;
			}
			factor *= 0x80;
		}
		throw UNUSUAL;
	}

	/** An int32 that is not negative. */
	int32(): number {
		const value = this.varint();
		if (value > 0x7fff_ffff) throw UNUSUAL;
		return value;
	}

	/** Reads a length; returns where what it is the length of ends. */
	length(): number {
		const length = this.varint();
		const end = this.position + length;
		if (end > this.#bytes.length) throw UNUSUAL;
		return end;
	}

	double(): number {
		const at = this.position;
		this.position += 8;
		if (this.position > this.#bytes.length) throw UNUSUAL;
		return this.#bytes.readDoubleLE(at);
	}

	string(): string {
		const end = this.length();
		const start = this.position;
		this.position = end;
		if (start === end) return "";
		if (this.#isAscii(start, end)) return this.#bytes.toString("latin1", start, end);
		if (!isUtf8(this.#bytes.subarray(start, end))) throw UNUSUAL;
		return this.#bytes.toString("utf8", start, end);
	}

	#isAscii(start: number, end: number): boolean {
		const bytes = this.#bytes;
		// Below this, looking at the bytes one by one beats a call out of JavaScript.
		if (end - start > 64) return isAscii(bytes.subarray(start, end));
		for (let index = start; index < end; index++) if ((bytes[index] ?? 0x80) > 0x7f) return false;
		return true;
	}
}
