import { hash } from "node:crypto";
import { invalid, ServiceError } from "../errors.ts";
import type { AccessKeyRow } from "../store/access.ts";
import type { Poster } from "../store/owners.ts";

/**
 * Permissions of a key: send records, read them with secrets redacted or encrypted, read secrets in plain text, read
 * the metrics of the service, create and revoke keys, erase conversations, send what happens to endpoints, pause conversations by
 * budgets, score conversations and events.
 */
export const scopes = ["ingest", "read", "secrets", "metrics", "keys", "erase", "forward", "pause", "score"] as const;
export type Scope = (typeof scopes)[number];

/** Scopes of a key whose entry names none. */
export const defaultScopes: ReadonlySet<Scope> = new Set<Scope>(["ingest", "read"]);

/** Form of the name of an owner, and of a stored key. */
export const OWNER = /^[A-Za-z0-9._-]{1,64}$/;

/** @throws ServiceError `invalid_argument` for a name that has not the form {@link OWNER} */
export function requireName(field: string, name: string): void {
	if (!OWNER.test(name)) throw invalid(field, "must be 1 to 64 letters, digits, dots, dashes or underscores");
}

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

/** A key of the configuration: its hash, never the key itself. */
export interface KeyEntry extends Omit<Principal, "ended"> {
	/** SHA-256 of the key's UTF-8 bytes, 32 bytes long. */
	readonly hash: Uint8Array;
}

/** Returns the SHA-256 of a key. A plain digest is sufficient only because keys are random and long. */
export function hashKey(key: string): Uint8Array {
	return hash("sha256", key, "buffer");
}

/** A stored key that is not revoked. */
interface StoredKey {
	readonly principal: Principal;
	/** Milliseconds of Unix time; infinite for a key that does not expire. */
	readonly expiresAt: number;
	/** Ends the watches of its holder. */
	readonly end: AbortController;
}

/** Longest time in milliseconds for which a timer can be set. */
const LONGEST_TIMER = 2 ** 31 - 1;

/**
 * The access keys of the service: those of the configuration, and those that are stored. An empty keyring authenticates
 * nobody. Keys are found by their digest, so the time that it takes reveals nothing of a key.
 */
export class Keyring {
	readonly #configured: ReadonlyMap<string, Principal>;
	#stored: ReadonlyMap<string, StoredKey> = new Map();
	#expiry: NodeJS.Timeout | undefined;
	readonly #onUse: (name: string) => void;

	/** @param onUse called for each request that a stored key authenticates, with its name */
	constructor(configured: readonly KeyEntry[], onUse: (name: string) => void = () => undefined) {
		this.#configured = new Map(
			configured.map(({ name, scopes, owner, hash }) => [digestOf(hash), Object.freeze({ name, scopes, owner })]),
		);
		this.#onUse = onUse;
	}

	/** Replaces the stored keys. Watches of a key that is revoked, or not among them any more, end. */
	setStored(rows: readonly AccessKeyRow[]): void {
		const before = this.#stored;
		const stored = new Map(
			rows
				.filter(({ revokedAt }) => revokedAt === undefined)
				.map((row) => {
					const digest = digestOf(row.sha256);
					const expiresAt = row.expiresAt === undefined ? Number.POSITIVE_INFINITY : Number(row.expiresAt / 1000n);
					return [digest, { ...(before.get(digest) ?? holderOf(row)), expiresAt }] as const;
				}),
		);
		this.#stored = stored;
		for (const [digest, { end }] of before) if (!stored.has(digest)) end.abort();
		this.#endExpired();
	}

	/** Ends the watches of keys that have expired, and waits for the next one that expires. */
	#endExpired(): void {
		clearTimeout(this.#expiry);
		let next = Number.POSITIVE_INFINITY;
		const now = Date.now();
		for (const { expiresAt, end } of this.#stored.values())
			if (expiresAt <= now) end.abort();
			else next = Math.min(next, expiresAt);
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
	 * @throws ServiceError `unauthenticated`, with different messages for a missing, an unknown and an expired key
	 */
	authenticate(presented: string | undefined): Principal {
		if (presented === undefined || presented === "")
			throw new ServiceError("unauthenticated", "The access key is missing");
		const digest = digestOfKey(presented);
		const configured = this.#configured.get(digest);
		if (configured !== undefined) return configured;
		const stored = this.#stored.get(digest);
		if (stored === undefined) throw new ServiceError("unauthenticated", "The access key is not known");
		if (stored.expiresAt <= Date.now()) throw new ServiceError("unauthenticated", "The access key has expired");
		this.#onUse(stored.principal.name);
		return stored.principal;
	}
}

function holderOf({ name, scopes: granted, owner }: AccessKeyRow): Pick<StoredKey, "principal" | "end"> {
	const end = new AbortController();
	const principal = {
		name,
		// A newer release may have stored scopes that this one does not know.
		scopes: new Set(scopes.filter((scope) => granted.includes(scope))),
		owner: owner === "" ? undefined : owner,
		ended: end.signal,
	};
	return { principal: Object.freeze(principal), end };
}

/** Returns a time in milliseconds as the store has it, in microseconds. */
export function microseconds(time: number): bigint {
	return BigInt(time) * 1000n;
}

function digestOf(hash: Uint8Array): string {
	return Buffer.from(hash).toString("base64");
}

/** Returns the {@link digestOf} of the {@link hashKey} of a key, in one step because each request needs it. */
function digestOfKey(key: string): string {
	return hash("sha256", key, "base64");
}

/** @throws ServiceError `permission_denied`, which names the scope that the principal lacks */
export function authorize(principal: Principal, scope: Scope): void {
	if (!principal.scopes.has(scope)) {
		throw new ServiceError("permission_denied", `The access key or client certificate lacks the scope "${scope}"`, {
			caller: principal.name,
		});
	}
}
