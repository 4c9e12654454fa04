const uuidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** The 16 bytes of a lower-case UUID with dashes; undefined when the text is none. */
export function uuidBytes(id: string): Uint8Array | undefined {
	return uuidPattern.test(id) ? Buffer.from(id.replaceAll("-", ""), "hex") : undefined;
}

/** The lower-case text with dashes of a UUID's 16 bytes. */
export function uuidText(bytes: Uint8Array): string {
	const hex = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex");
	return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
