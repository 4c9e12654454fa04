/** Decodes a percent-encoded text (RFC 3986, section 2.1). Returns undefined when it is not percent-encoded UTF-8. */
export function percentDecode(text: string): string | undefined {
	try {
		return decodeURIComponent(text);
	} catch {
		return undefined;
	}
}
