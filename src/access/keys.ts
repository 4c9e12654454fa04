import { hash, timingSafeEqual } from "node:crypto";
import { ServiceError } from "../errors.ts";

/**
 * Permissions of a key: send records, read them with secrets redacted or encrypted, read secrets in plain text, read
 * the metrics of the service.
 */
export const scopes = ["ingest", "read", "secrets", "metrics"] as const;
export type Scope = (typeof scopes)[number];

/** Scopes of a key whose entry names none. */
export const defaultScopes: ReadonlySet<Scope> = new Set<Scope>(["ingest", "read"]);

/** The authenticated sender of a request. */
export interface Principal {
	/** Name of the holder of the key or certificate; may appear in logs. */
	readonly name: string;
	readonly scopes: ReadonlySet<Scope>;
}

/** A key as the service stores it: its hash, never the key itself. */
export interface KeyEntry extends Principal {
	/** SHA-256 of the key's UTF-8 bytes, 32 bytes long. */
	readonly hash: Uint8Array;
}

/**
 * Returns the SHA-256 of a key. A plain digest is sufficient only because keys are random and long. It takes about a
 * microsecond per request, where a password hash would take milliseconds.
 */
export function hashKey(key: string): Uint8Array {
	return hash("sha256", key, "buffer");
}

/** The access keys of the service. An empty keyring authenticates nobody. */
export class Keyring {
	readonly #hashes: readonly Uint8Array[];
	readonly #principals: readonly Principal[];

	constructor(entries: readonly KeyEntry[]) {
		this.#hashes = entries.map((entry) => entry.hash);
		this.#principals = entries.map(({ name, scopes }) => Object.freeze({ name, scopes }));
	}

	/**
	 * Finds the holder of a presented key. Compares all digests, each in constant time, so that the response time reveals
	 * neither how much of a key was right nor whose key it is.
	 *
	 * @param presented the key as it arrived; undefined or empty when the request carried none
	 * @throws {ServiceError} `unauthenticated`, with different messages for a missing and an unknown key
	 */
	authenticate(presented: string | undefined): Principal {
		if (presented === undefined || presented === "")
			throw new ServiceError("unauthenticated", "The access key is missing");
		const digest = hashKey(presented);
		let found = -1;
		for (const [index, known] of this.#hashes.entries()) {
			if (timingSafeEqual(digest, known)) found = index;
		}
		const principal = this.#principals[found];
		if (principal === undefined) throw new ServiceError("unauthenticated", "The access key is not known");
		return principal;
	}
}

/**
 * Checks that a principal has a scope.
 *
 * @throws {ServiceError} `permission_denied`, naming the scope that the principal lacks
 */
export function authorize(principal: Principal, scope: Scope): void {
	if (!principal.scopes.has(scope)) {
		throw new ServiceError("permission_denied", `The access key or client certificate lacks the scope "${scope}"`, {
			caller: principal.name,
		});
	}
}
