/**
 * Byte strings laid one after the other, to cross between threads as one transfer; large ones travel as they are.
 */
export interface Packed {
	readonly bytes: Uint8Array<ArrayBuffer>;
	/** Length of each byte string in `bytes`; -1 for the next of `large`. */
	readonly lengths: readonly number[];
	readonly large: readonly Uint8Array<ArrayBuffer>[];
}

const NOTHING: Packed = { bytes: new Uint8Array(), lengths: [], large: [] };
/** From this size on, a transfer of its own costs less than a copy. */
const LARGE = 32 * 1024;

/**
 * Copies byte strings into one buffer of their own, which can be transferred. Those of 32 KiB and more that fill their
 * memory are taken as they are.
 */
export function pack(parts: readonly Uint8Array[]): Packed {
	if (parts.length === 0) return NOTHING;
	const large = parts.filter(isLarge);
	const small = parts.filter((part) => !isLarge(part));
	// Every byte is written below, so the buffer need not be zeroed; "slow" means that it comes from no shared pool.
	const bytes = Buffer.allocUnsafeSlow(small.reduce((sum, part) => sum + part.byteLength, 0));
	let offset = 0;
	for (const part of small) {
		bytes.set(part, offset);
		offset += part.byteLength;
	}
	return { bytes, lengths: parts.map((part) => (isLarge(part) ? -1 : part.byteLength)), large };
}

/** Gives the byte strings back in their order; the small ones are views of one buffer. */
export function* unpack({ bytes, lengths, large }: Packed): Generator<Uint8Array<ArrayBuffer>, void, void> {
	let offset = 0;
	let next = 0;
	for (const length of lengths) {
		const whole = length === -1 ? large[next++] : undefined;
		if (whole !== undefined) {
			yield whole;
			continue;
		}
		yield bytes.subarray(offset, offset + length);
		offset += length;
	}
}

/** The memory that crosses with packed byte strings. */
export function transferOf({ bytes, large }: Packed): ArrayBuffer[] {
	const buffers = large.map((part) => part.buffer);
	// Transferring memory costs more than a small message: most requests of a reader have no bytes.
	if (bytes.byteLength > 0) buffers.push(bytes.buffer);
	return buffers;
}

/** Gives the memory of packed byte strings back at once, where the garbage collector would let much of it gather. */
export function release(packed: Packed): void {
	for (const buffer of transferOf(packed)) if (!buffer.detached) buffer.transfer(0);
}

function isLarge(part: Uint8Array): part is Uint8Array<ArrayBuffer> {
	return part.byteLength >= LARGE && part.buffer instanceof ArrayBuffer && part.byteLength === part.buffer.byteLength;
}
