/**
 * Frees the memory of bytes that are not used any more. Left to the garbage collector, buffers that cross between
 * threads would accumulate and then cause a collection of the whole heap.
 */
export function release({ buffer }: Uint8Array): void {
	if (buffer instanceof ArrayBuffer && !buffer.detached) buffer.transfer(0);
}

/** Frees the memory of bytes as {@link release} does, unless they are a part of a larger ArrayBuffer. */
export function releaseWhole(bytes: Uint8Array): void {
	if (bytes.byteLength === bytes.buffer.byteLength) release(bytes);
}

/** Returns the bytes in an ArrayBuffer of their own: a message to another thread includes the whole ArrayBuffer. */
export function compact(bytes: Uint8Array): Uint8Array {
	return bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
}

/** Returns a buffer that shares the memory of the bytes. */
export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
	return Buffer.from(buffer, byteOffset, byteLength);
}

/** Returns byte strings in one ArrayBuffer of their own, which reaches another thread faster than many ArrayBuffers. */
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
