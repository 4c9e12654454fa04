/** Byte strings laid one after the other, to cross between threads as one transfer. */
export interface Packed {
	readonly bytes: Uint8Array<ArrayBuffer>;
	readonly lengths: readonly number[];
}

/** Copies byte strings into one buffer of their own, which can be transferred. */
export function pack(parts: readonly Uint8Array[]): Packed {
	const lengths = parts.map((part) => part.byteLength);
	// Every byte is written below, so the buffer need not be zeroed; "slow" means that it comes from no shared pool.
	const bytes = Buffer.allocUnsafeSlow(lengths.reduce((sum, length) => sum + length, 0));
	let offset = 0;
	for (const part of parts) {
		bytes.set(part, offset);
		offset += part.byteLength;
	}
	return { bytes, lengths };
}

/** Gives the byte strings back in their order, as views of the one buffer. */
export function* unpack({ bytes, lengths }: Packed): Generator<Uint8Array<ArrayBuffer>, void, void> {
	let offset = 0;
	for (const length of lengths) {
		yield bytes.subarray(offset, offset + length);
		offset += length;
	}
}
