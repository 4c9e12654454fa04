import { type DescMethod, type DescService, getOption } from "@bufbuild/protobuf";
import { scope as scopeOption } from "../../gen/conversations/options/v1/options_pb.js";
import { type ErrorKind, ServiceError } from "../errors.ts";
import { authorize, type Keyring, type Principal, type Scope, scopes } from "./keys.ts";

interface GateOptions {
	/** Holders of client certificates. Their names are the names of the certificates. */
	readonly certificates?: readonly Principal[];
	readonly rateLimit?: RateLimit | undefined;
	/** Called when a holder lacks the scope `ingest` for a post, or exceeds the limit with one. */
	readonly onRefused?: (holder: Principal, kind: ErrorKind) => void;
}

/** The error for a client whose certificate has no scopes, and that sends no key of this service. */
const UNKNOWN_CERTIFICATE = new ServiceError(
	"unauthenticated",
	"The name of the client certificate is not in CLIENT_CERTIFICATES, and the request has no valid access key",
);

/**
 * Decides which requests may reach routes and RPCs, before the request body is read. It denies by default: nobody can
 * call an RPC whose descriptor names no scope.
 */
export class Gate {
	readonly #keyring: Pick<Keyring, "authenticate" | "knows">;
	readonly #scopes = new Map<string, Scope | undefined>();
	readonly #certificates: ReadonlyMap<string, Principal>;
	readonly #rateLimit: RateLimit | undefined;
	readonly #onRefused: GateOptions["onRefused"];

	constructor(
		keyring: Pick<Keyring, "authenticate" | "knows">,
		services: readonly DescService[],
		{ certificates, rateLimit, onRefused }: GateOptions = {},
	) {
		this.#keyring = keyring;
		this.#certificates = new Map(certificates?.map((holder) => [holder.name, holder]));
		this.#rateLimit = rateLimit;
		this.#onRefused = onRefused;
		for (const service of services)
			for (const method of service.methods) this.#scopes.set(rpcPath(method), scopeOf(method));
	}

	/**
	 * Admits a request that needs a scope, and counts it for the rate limit. If the request has a key, the certificate is
	 * ignored.
	 *
	 * @param fields names and values of all header fields in turn. Node.js drops the second of two fields `Authorization`
	 *   from the headers that it parses
	 * @param certificate returns the name of the client certificate that the TLS connection has verified, if there is one
	 * @throws ServiceError `unauthenticated`, `permission_denied` or `rate_limited`
	 */
	admit(scope: Scope, fields: readonly string[], certificate: CertificateName = () => undefined): Principal {
		const principal = this.#authenticate(fields, certificate);
		try {
			authorize(principal, scope);
			this.#rateLimit?.take(principal);
		} catch (error) {
			if (scope === "ingest" && error instanceof ServiceError) this.#onRefused?.(principal, error.kind);
			throw error;
		}
		return principal;
	}

	/** Returns the scope that the RPC at a path, `/package.Service/Method`, needs; undefined when no key can call it. */
	scopeOf(path: string): Scope | undefined {
		return this.#scopes.get(path);
	}

	/** Admits an RPC by its path, `/package.Service/Method`; otherwise as {@link admit}. */
	admitRpc(path: string, fields: readonly string[], certificate: CertificateName = () => undefined): Principal {
		const scope = this.#scopes.get(path);
		if (scope !== undefined) return this.admit(scope, fields, certificate);
		this.#authenticate(fields, certificate);
		throw new ServiceError("permission_denied", "No access key or client certificate can call this method");
	}

	#authenticate(fields: readonly string[], certificate: CertificateName): Principal {
		const key = presentedKey(fields, this.#keyring, certificate);
		const name = key === undefined ? certificate() : undefined;
		if (name === undefined) return this.#keyring.authenticate(key);
		const holder = this.#certificates.get(name);
		if (holder === undefined) throw UNKNOWN_CERTIFICATE;
		return holder;
	}
}

type CertificateName = () => string | undefined;

/** Returns the path of an RPC in the gRPC and Connect protocols. */
export function rpcPath(method: DescMethod): string {
	return `/${method.parent.typeName}/${method.name}`;
}

/** Returns the scope that a method needs, as its option says; undefined when no key can call it. */
export function scopeOf(method: DescMethod): Scope | undefined {
	const name = getOption(method, scopeOption);
	return scopes.find((scope) => scope === name);
}

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
 * @throws ServiceError `unauthenticated` when the request has two different keys
 */
function presentedKey(
	fields: readonly string[],
	keyring: Pick<Keyring, "knows">,
	certificate: CertificateName,
): string | undefined {
	const keys = new Set<string>();
	const sessions = new Set<string>();
	for (let n = 0; n < fields.length; n += 2) {
		const [name = "", value = ""] = [fields[n]?.toLowerCase(), fields[n + 1]];
		if (name === KEY_HEADER) for (const key of listed(value)) keys.add(key);
		if (name === SESSION_HEADER) for (const key of listed(value)) sessions.add(key);
		if (name === "authorization") keys.add(/^Bearer +([^ ]+) *$/i.exec(value)?.[1] ?? "");
	}
	keys.delete("");
	const isAlone = keys.size === 0 && certificate() === undefined;
	for (const session of sessions) if (session !== "" && (isAlone || keyring.knows(session))) keys.add(session);
	if (keys.size > 1) throw new ServiceError("unauthenticated", "The request has two different access keys");
	const [key] = keys;
	return key;
}

/** Returns the keys of a field. Several fields of a name may arrive as one with a list (RFC 9110, section 5.3). */
function listed(value: string): string[] {
	return value.split(",").map((key) => key.trim());
}

/**
 * Limits the requests a second of each holder of a key or certificate, by a token bucket. The bucket holds one second's
 * requests, so that a holder may make as many at once after a pause of a second.
 */
export class RateLimit {
	readonly #perSecond: number;
	/** The tokens of each holder, and when they were counted, in milliseconds. Each request takes one. */
	readonly #buckets = new Map<Principal, { readonly tokens: number; readonly countedAt: number }>();

	constructor(perSecond: number) {
		this.#perSecond = perSecond;
	}

	/**
	 * Counts a request of a holder.
	 *
	 * @param now milliseconds of a monotonic clock
	 * @throws ServiceError `rate_limited`
	 */
	take(holder: Principal, now = performance.now()): void {
		const { tokens, countedAt } = this.#buckets.get(holder) ?? { tokens: this.#perSecond, countedAt: now };
		const filled = Math.min(this.#perSecond, tokens + ((now - countedAt) / 1000) * this.#perSecond);
		this.#buckets.set(holder, { tokens: filled < 1 ? filled : filled - 1, countedAt: now });
		if (filled < 1)
			throw new ServiceError(
				"rate_limited",
				`The access key or client certificate exceeds its limit of ${this.#perSecond} requests per second`,
				{ caller: holder.name },
			);
	}
}
