import { hash } from "node:crypto";
import { ServiceError } from "../errors.ts";
import type { Poster } from "../store/owners.ts";

/**
 * Permissions of a key: send records, read them with secrets redacted or encrypted, read secrets in plain text, read
 * the metrics of the service, create and revoke keys, erase conversations, send what happens to endpoints, pause conversations by
 * budgets.
 */
export const scopes = ["ingest", "read", "secrets", "metrics", "keys", "erase", "forward", "pause"] as const;
export type Scope = (typeof scopes)[number];

/** Scopes of a key whose entry names none. */
export const defaultScopes: ReadonlySet<Scope> = new Set<Scope>(["ingest", "read"]);

/** Form of the name of an owner. */
export const OWNER = /^[A-Za-z0-9._-]{1,64}$/;

/** The authenticated sender of a request. */
export interface Principal {
	/** Name of the holder of the key or certificate; may appear in logs. */
	readonly name: string;
	readonly scopes: ReadonlySet<Scope>;
	/** Owner of what the holder posts and reads; undefined for a holder that sees everything. */
	readonly owner: string | undefined;
	/** Fires when the key is revoked or expires. Undefined for a holder that is set in the configuration. */
	readonly ended?: AbortSignal | undefined;
}

/** Returns the holder as the store knows who posts. */
export function posterOf({ name, owner }: Pick<Principal, "name" | "owner">): Poster {
	return { sender: name, owner };
}

/** A key as the service stores it: its hash, never the key itself. */
export interface KeyEntry extends Omit<Principal, "ended"> {
	/** SHA-256 of the key's UTF-8 bytes, 32 bytes long. */
	readonly hash: Uint8Array;
}

/** A key that was made while the service ran. Times are milliseconds of Unix time. */
export interface StoredKey extends KeyEntry {
	readonly expiresAt: number | undefined;
	readonly revokedAt: number | undefined;
}

/**
 * Returns the SHA-256 of a key. A plain digest is sufficient only because keys are random and long. It takes about a
 * microsecond per request, where a password hash would take milliseconds.
 */
export function hashKey(key: string): Uint8Array {
	return hash("sha256", key, "buffer");
}

/** A key that the keyring accepts. */
interface Accepted {
	readonly principal: Principal;
	/** Milliseconds of Unix time; undefined for a key that does not expire. */
	readonly expiresAt: number | undefined;
}

/** A stored key that the keyring knows, and what ends the watches of its holder. */
interface Known {
	readonly key: StoredKey;
	readonly principal: Principal;
	readonly end: AbortController;
}

/** Longest time in milliseconds for which a timer can be set. */
const LONGEST_TIMER = 2 ** 31 - 1;

/**
 * The access keys of the service: those of the configuration, and those that are stored. An empty keyring authenticates
 * nobody. Keys are found by their digest, so the time that it takes reveals nothing of a key.
 */
export class Keyring {
	readonly #configured: ReadonlyMap<string, Accepted>;
	#stored: ReadonlyMap<string, Accepted> = new Map();
	/** Stored keys by name. */
	#known: ReadonlyMap<string, Known> = new Map();
	#expiry: NodeJS.Timeout | undefined;
	readonly #onUse: (name: string) => void;

	/**
	 * @param configured keys of the configuration
	 * @param onUse called for each request that a stored key authenticates, with its name
	 */
	constructor(configured: readonly KeyEntry[], onUse: (name: string) => void = () => undefined) {
		this.#configured = new Map(
			configured.map(({ name, scopes, owner, hash }) => [
				digestOf(hash),
				{ principal: Object.freeze({ name, scopes, owner }), expiresAt: undefined },
			]),
		);
		this.#onUse = onUse;
	}

	/** Replaces the stored keys. Watches of a key that is revoked, or not among them any more, end. */
	setStored(keys: readonly StoredKey[]): void {
		const known = new Map<string, Known>();
		const stored = new Map<string, Accepted>();
		for (const key of keys) {
			const before = this.#known.get(key.name);
			const same = before !== undefined && digestOf(before.key.hash) === digestOf(key.hash);
			const end = same ? before.end : new AbortController();
			const { name, scopes, owner } = key;
			const principal = same ? before.principal : Object.freeze({ name, scopes, owner, ended: end.signal });
			known.set(name, { key, principal, end });
			if (key.revokedAt === undefined) stored.set(digestOf(key.hash), { principal, expiresAt: key.expiresAt });
		}
		const ended = [...this.#known.values()].filter(({ key, end }) => known.get(key.name)?.end !== end);
		this.#known = known;
		this.#stored = stored;
		for (const { end } of ended) end.abort();
		this.#endExpired();
	}

	/** Ends the watches of keys that are revoked or have expired, and waits for the next one that expires. */
	#endExpired(): void {
		clearTimeout(this.#expiry);
		let next = Number.POSITIVE_INFINITY;
		const now = Date.now();
		for (const { key, end } of this.#known.values()) {
			const { expiresAt = Number.POSITIVE_INFINITY, revokedAt } = key;
			if (revokedAt !== undefined || expiresAt <= now) end.abort();
			else next = Math.min(next, expiresAt);
		}
		if (next === Number.POSITIVE_INFINITY) return;
		this.#expiry = setTimeout(() => this.#endExpired(), Math.min(next - now, LONGEST_TIMER));
		this.#expiry.unref();
	}

	/** Returns whether a key is one of the service, also when it has expired. */
	knows(key: string): boolean {
		const digest = digestOfKey(key);
		return this.#configured.has(digest) || this.#stored.has(digest);
	}

	/**
	 * Finds the holder of a presented key.
	 *
	 * @param presented the key as it arrived; undefined or empty when the request carried none
	 * @throws {ServiceError} `unauthenticated`, with different messages for a missing, an unknown and an expired key
	 */
	authenticate(presented: string | undefined): Principal {
		if (presented === undefined || presented === "")
			throw new ServiceError("unauthenticated", "The access key is missing");
		const digest = digestOfKey(presented);
		const configured = this.#configured.get(digest);
		if (configured !== undefined) return configured.principal;
		const stored = this.#stored.get(digest);
		if (stored === undefined) throw new ServiceError("unauthenticated", "The access key is not known");
		if (stored.expiresAt !== undefined && stored.expiresAt <= Date.now())
			throw new ServiceError("unauthenticated", "The access key has expired");
		this.#onUse(stored.principal.name);
		return stored.principal;
	}
}

function digestOf(hash: Uint8Array): string {
	return Buffer.from(hash).toString("base64");
}

/** Returns the {@link digestOf} of the {@link hashKey} of a key. */
function digestOfKey(key: string): string {
	return hash("sha256", key, "base64");
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
