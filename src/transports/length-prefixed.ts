/** Number of bytes before each message: a flag for compression, and the length of the message (gRPC over HTTP/2). */
export const PREFIX_BYTES = 5;

/** Size in bytes from which a message becomes a chunk of its own, because that costs less than a copy. */
const OWN_CHUNK = 16 * 1024;

/**
 * Returns the bytes of uncompressed length-prefixed messages (gRPC over HTTP/2, "Requests": compressed-flag, length,
 * message; the same in gRPC-Web and in the streams of Connect), in few chunks.
 */
export function lengthPrefixed(messages: readonly Uint8Array[]): Uint8Array[] {
	const chunks: Uint8Array[] = [];
	let gathered: Uint8Array[] = [];
	const flush = () => {
		if (gathered.length > 0) chunks.push(Buffer.concat(gathered));
		gathered = [];
	};
	for (const message of messages) {
		const prefix = Buffer.alloc(PREFIX_BYTES);
		prefix.writeUInt32BE(message.byteLength, 1);
		gathered.push(prefix);
		if (message.byteLength >= OWN_CHUNK) {
			flush();
			chunks.push(message);
		} else gathered.push(message);
	}
	flush();
	return chunks;
}
