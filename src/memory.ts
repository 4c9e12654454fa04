/**
 * Frees the memory of bytes that nobody uses any more. The garbage collector would let much of what crosses between
 * threads gather, and then collect the whole heap because of it.
 */
export function release({ buffer }: Uint8Array): void {
	if (buffer instanceof ArrayBuffer && !buffer.detached) buffer.transfer(0);
}

/** The bytes in an ArrayBuffer that holds nothing else, as that is what crosses to another thread. */
export function compact(bytes: Uint8Array): Uint8Array {
	return bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
}

/** Byte strings that share an ArrayBuffer which holds nothing else: one is copied to another thread sooner than many. */
export function compactAll(parts: readonly Uint8Array[]): readonly Uint8Array[] {
	const size = parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
	const shared = parts[0]?.buffer;
	if (shared?.byteLength === size && parts.every(({ buffer }) => buffer === shared)) return parts;
	const whole = new Uint8Array(size);
	let end = 0;
	return parts.map((part) => {
		const start = end;
		whole.set(part, start);
		end += part.byteLength;
		return whole.subarray(start, end);
	});
}
