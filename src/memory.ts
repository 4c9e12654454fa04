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
