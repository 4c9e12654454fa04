/**
 * Lists of byte strings laid one after the other, to cross between threads as one transfer; large ones travel as they
 * are.
 */
export interface Packed {
	readonly bytes: Uint8Array<ArrayBuffer>;
	/** Lengths of the byte strings of each list in `bytes`; -1 for the next of `large`. */
	readonly lengths: readonly (readonly number[])[];
	readonly large: readonly Uint8Array<ArrayBuffer>[];
}

/**
 * What `map` gives, as an array that crosses to another thread in half the time: those of `map` have room for holes,
 * and are written with the index of each item.
 */
export function mapDense<Item, Result>(items: readonly Item[], map: (item: Item) => Result): Result[] {
	const results: Result[] = [];
	for (const item of items) results.push(map(item));
	return results;
}

/** From this size on, a transfer of its own costs less than a copy. */
const LARGE = 32 * 1024;
/** Memory around a byte string that may travel along: a message of gRPC has its prefix before it. */
const SPARE = 16;
const NO_BYTES = new Uint8Array();

/**
 * Copies byte strings into one buffer of their own, which can be transferred. Those of 32 KiB and more that fill their
 * memory, but for a few bytes, are taken as they are: it is gone for the caller once they are transferred.
 */
export function pack(lists: readonly (readonly Uint8Array[])[]): Packed {
	const large: Uint8Array<ArrayBuffer>[] = [];
	let size = 0;
	const lengths = mapDense(lists, (parts) =>
		mapDense(parts, (part) => {
			if (isLarge(part)) {
				large.push(part);
				return -1;
			}
			size += part.byteLength;
			return part.byteLength;
		}),
	);
	if (size === 0) return { bytes: NO_BYTES, lengths, large };
	// Every byte is written below, so the buffer need not be zeroed; "slow" means that it comes from no shared pool.
	const bytes = Buffer.allocUnsafeSlow(size);
	let offset = 0;
	for (const parts of lists)
		for (const part of parts) {
			if (isLarge(part)) continue;
			bytes.set(part, offset);
			offset += part.byteLength;
		}
	return { bytes, lengths, large };
}

/** Gives the lists back; their small byte strings are views of one buffer. */
export function unpack({ bytes, lengths, large }: Packed): Uint8Array<ArrayBuffer>[][] {
	let offset = 0;
	const whole = large.values();
	return lengths.map((list) =>
		list.map((length) => {
			if (length === -1) return whole.next().value ?? NO_BYTES;
			offset += length;
			return bytes.subarray(offset - length, offset);
		}),
	);
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
	const { buffer, byteLength } = part;
	return byteLength >= LARGE && buffer instanceof ArrayBuffer && buffer.byteLength - byteLength <= SPARE;
}
