/** RFC 6838, section 4.2: a subtype begins with a letter or digit; `+json` is the suffix of RFC 6839. */
const jsonMediaType = /^[ \t]*application\/(?:json|[a-z0-9][a-z0-9!#$&^_.+-]*\+json)[ \t]*(?:;|$)/i;

/**
 * Whether a Content-Type field names JSON: `application/json` or `application/*+json`, in any case and with any
 * parameters (RFC 9110, section 8.3.1). A missing field names nothing.
 */
export function isJson(contentType: string | undefined): boolean {
	return contentType === "application/json" || (contentType !== undefined && jsonMediaType.test(contentType));
}
