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
 * @param fields names and values of all header fields in turn. Node.js drops the second of two fields `Authorization`
 *   from the headers that it parses
 * @param knows returns whether a key is one of this service
 * @param hasCertificate returns whether the client has a certificate, which may stand in for a key
 * @returns undefined when the request has no key
 * @throws ServiceError `unauthenticated` when the request has two different keys
 */
export function presentedKey(
	fields: readonly string[],
	knows: (key: string) => boolean,
	hasCertificate: () => boolean = () => false,
): string | undefined {
	const tokens: string[] = [];
	const sessions: string[] = [];
	const keys = new Set<string>();
	for (let n = 0; n < fields.length; n += 2) {
		const [name = "", value = ""] = [fields[n]?.toLowerCase(), fields[n + 1]];
		if (name === KEY_HEADER) tokens.push(value);
		else if (name === SESSION_HEADER) sessions.push(value);
		else if (name === "authorization") keys.add(/^Bearer +([^ ]+) *$/i.exec(value)?.[1] ?? "");
	}
	// Two of these fields are one with a list (RFC 9110, section 5.3), which is no key.
	keys.add(tokens.join()).delete("");
	const session = sessions.join();
	if (session && (knows(session) || (keys.size === 0 && !hasCertificate()))) keys.add(session);
	if (keys.size > 1) throw new ServiceError("unauthenticated", "The request has two different access keys");
	const [key] = keys;
	return key;
}
