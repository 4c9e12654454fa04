import { ServiceError } from "../errors.ts";

/** Name of the HTTP header and gRPC metadata entry that carries the access key. */
const KEY_HEADER = "x-access-token";

/** The header that the agent server's own receiver reads. */
const SESSION_HEADER = "x-session-api-key";

/** All headers that can carry the key. */
export const KEY_HEADERS = [KEY_HEADER, "authorization", SESSION_HEADER] as const;

/**
 * Returns the access key of a request: that of `X-Access-Token`, of `Authorization: Bearer` (RFC 6750, section 2.1) or of
 * `X-Session-API-Key`. Other schemes of `Authorization` are ignored. An agent server sends a session key of its own with
 * each post, so a session key that is no key of this service does not count beside another header or a certificate.
 *
 * @param header returns the value of a header by its name in lower case; undefined when the request lacks it
 * @param knows returns whether a key is one of this service
 * @param hasCertificate returns whether the client has a certificate with which it needs no key
 * @returns undefined when the request has no key
 * @throws ServiceError `unauthenticated` when the request has two different keys
 */
export function presentedKey(
	header: (name: string) => string | undefined,
	knows: (key: string) => boolean,
	hasCertificate: () => boolean = () => false,
): string | undefined {
	const bearer = /^Bearer +([^ ]+) *$/i.exec(header("authorization") ?? "")?.[1];
	const keys = new Set([header(KEY_HEADER), bearer].filter(Boolean));
	const session = header(SESSION_HEADER);
	if (session && (knows(session) || (keys.size === 0 && !hasCertificate()))) keys.add(session);
	if (keys.size > 1) throw new ServiceError("unauthenticated", "The request has two different access keys");
	const [key] = keys;
	return key;
}
