/** A subtype begins with a letter or a digit (RFC 6838, section 4.2). `+json` is a suffix of RFC 6839. */
const JSON_MEDIA_TYPE = /^[ \t]*application\/(?:json|[a-z0-9][a-z0-9!#$&^_.+-]*\+json)[ \t]*(?:;|$)/i;

/**
 * Whether a Content-Type field names JSON: `application/json` or `application/*+json`, case-insensitive and with any
 * parameters (RFC 9110, section 8.3.1). A missing field does not.
 */
export function isJson(contentType: string | undefined): boolean {
	return contentType === "application/json" || (contentType !== undefined && JSON_MEDIA_TYPE.test(contentType));
}
