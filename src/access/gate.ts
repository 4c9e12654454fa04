import { type DescMethod, type DescService, getOption } from "@bufbuild/protobuf";
import { scope as scopeOption } from "../../gen/conversations/options/v1/options_pb.js";
import { type ErrorKind, ServiceError } from "../errors.ts";
import { authorize, type Keyring, type Principal, type Scope, scopes } from "./keys.ts";
import type { RateLimit } from "./rate-limit.ts";

/** Optional settings of a {@link Gate}. */
export interface GateOptions {
	/** Holders of client certificates. Their names are the names of the certificates. */
	readonly certificates?: readonly Principal[];
	/** Limits the requests of each holder. */
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
		options: GateOptions = {},
	) {
		this.#keyring = keyring;
		this.#certificates = new Map(options.certificates?.map((holder) => [holder.name, holder]));
		this.#rateLimit = options.rateLimit;
		this.#onRefused = options.onRefused;
		for (const service of services)
			for (const method of service.methods) this.#scopes.set(rpcPath(method), scopeOf(method));
	}

	/** Returns whether a key is one of the service, also when it has expired. */
	knows(key: string): boolean {
		return this.#keyring.knows(key);
	}

	/**
	 * Admits a request that needs a scope, and counts it for the rate limit.
	 *
	 * @param key the access key. If there is one, the certificate is ignored
	 * @param certificate name of the client certificate that the TLS connection has verified
	 * @throws ServiceError `unauthenticated`, `permission_denied` or `rate_limited`
	 */
	admit(scope: Scope, key: string | undefined, certificate?: string): Principal {
		const principal = this.#authenticate(key, certificate);
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
	admitRpc(path: string, key: string | undefined, certificate?: string): Principal {
		const scope = this.#scopes.get(path);
		if (scope !== undefined) return this.admit(scope, key, certificate);
		this.#authenticate(key, certificate);
		throw new ServiceError("permission_denied", "No access key or client certificate can call this method");
	}

	#authenticate(key: string | undefined, certificate: string | undefined): Principal {
		if (key || certificate === undefined) return this.#keyring.authenticate(key);
		const holder = this.#certificates.get(certificate);
		if (holder === undefined) throw UNKNOWN_CERTIFICATE;
		return holder;
	}
}

/** Returns the path of an RPC in the gRPC and Connect protocols. */
export function rpcPath(method: DescMethod): string {
	return `/${method.parent.typeName}/${method.name}`;
}

/** Returns the scope that a method needs, as its option says; undefined when no key can call it. */
export function scopeOf(method: DescMethod): Scope | undefined {
	const name = getOption(method, scopeOption);
	return scopes.find((scope) => scope === name);
}
