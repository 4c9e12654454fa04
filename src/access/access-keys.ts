import { randomBytes } from "node:crypto";
import { ServiceError } from "../errors.ts";
import type { AccessKeyRow } from "../store/access-keys.ts";
import { type AuditedCaller, entryOf } from "./audit.ts";
import { defaultScopes, hashKey, OWNER, type Principal, type Scope, scopes } from "./keys.ts";
import { microseconds, SERVICE, type StoredKeys } from "./stored-keys.ts";

/** What a caller asks of a new key. */
interface NewAccessKey {
	readonly name: string;
	/** Names of scopes; those of {@link defaultScopes} if there are none. */
	readonly scopes: readonly string[];
	/** Empty for the owner of the caller. */
	readonly owner: string;
	/** Microseconds since the Unix epoch; undefined for a key that does not expire. */
	readonly expiresAt: bigint | undefined;
}

/** A key or certificate of the configuration. */
interface ConfiguredKey extends Pick<Principal, "name" | "scopes" | "owner"> {
	readonly configured: true;
}

/** A key in a list. */
export type ListedKey = ConfiguredKey | (AccessKeyRow & { readonly configured: false });

/** The changes that are written to the log. */
interface AccessKeysLog {
	/** A caller has created a key. The owner is empty if there is none. */
	accessKeyCreated(key: Pick<AccessKeyRow, "name" | "scopes" | "owner">, caller: string): void;
	/** A caller has revoked a key. */
	accessKeyRevoked(name: string, caller: string): void;
}

/** Form of the name of a stored key. */
const NAME = /^[A-Za-z0-9._-]{1,64}$/;
/** Holder of all scopes, without an owner: a command on the machine of the service. */
export const COMMAND: Principal = Object.freeze({ name: "command", scopes: new Set(scopes), owner: undefined });
/** The service itself, as a caller. */
const OF_SERVICE: AuditedCaller = { name: SERVICE, owner: undefined };
/** Scopes of the key of the first start. */
const FIRST_SCOPES: readonly Scope[] = [...defaultScopes, "metrics", "keys"];
/** Name of the key with which the first start opens the console. */
const CONSOLE_NAME = "console";
/** Milliseconds after which that key ends. */
const CONSOLE_KEY_LIFETIME = 24 * 60 * 60 * 1000;
/** Name of the key of the first start. */
const FIRST_NAME = "default";

/**
 * Creates, lists and revokes access keys for callers. A caller with an owner reaches the keys of that owner only. Every
 * change is logged and audited.
 */
export class AccessKeys {
	readonly #stored: StoredKeys;
	readonly #configured: readonly ConfiguredKey[];
	readonly #log: AccessKeysLog;

	/** @param configured keys and certificates of the configuration */
	constructor(
		stored: StoredKeys,
		configured: readonly Pick<Principal, "name" | "scopes" | "owner">[],
		log: AccessKeysLog,
	) {
		this.#stored = stored;
		this.#configured = configured.map(({ name, scopes, owner }) => ({ name, scopes, owner, configured: true }));
		this.#log = log;
	}

	/**
	 * Creates a key.
	 *
	 * @returns the key, 32 random bytes in base64url, and its row
	 * @throws ServiceError `invalid_argument`, `permission_denied` as {@link grantOf}, `already_exists`, or that of the store
	 */
	async create(asked: NewAccessKey, caller: Principal): Promise<{ readonly key: string; readonly row: AccessKeyRow }> {
		const { name, expiresAt } = asked;
		const now = microseconds(Date.now());
		if (!NAME.test(name)) throw invalid("name", "must be 1 to 64 letters, digits, dots, dashes or underscores");
		if (name === COMMAND.name || name === SERVICE) throw invalid("name", "is reserved");
		if (expiresAt !== undefined && expiresAt <= now) throw invalid("expires_at", "must be in the future");
		const grant = grantOf(asked, caller);
		if (this.#configured.some((configured) => configured.name === name)) throw taken(name);
		return await this.#create({ name, ...grant, expiresAt }, caller, now);
	}

	/**
	 * Creates the key of the first start.
	 *
	 * @param scopes default: those of posting, reading, metrics and keys
	 * @returns undefined if there are stored keys, even revoked ones
	 * @throws ServiceError when the store fails
	 */
	async createFirst(scopes = FIRST_SCOPES): Promise<string | undefined> {
		if (this.#stored.all.length > 0) return undefined;
		const grant = { name: FIRST_NAME, scopes, owner: "", expiresAt: undefined };
		const { key } = await this.#create(grant, OF_SERVICE, microseconds(Date.now()));
		return key;
	}

	/**
	 * Creates the key with which the first start opens the console. It ends after a day, because browsers may keep an address
	 * with a key.
	 *
	 * @param scopes default: it can only read
	 * @throws ServiceError when the store fails, or `already_exists`
	 */
	async createForConsole(scopes: readonly Scope[] = ["read"]): Promise<string> {
		const now = Date.now();
		const grant = { scopes, owner: "", expiresAt: microseconds(now + CONSOLE_KEY_LIFETIME) };
		const { key } = await this.#create({ name: CONSOLE_NAME, ...grant }, OF_SERVICE, microseconds(now));
		return key;
	}

	async #create(
		{ name, ...grant }: Pick<AccessKeyRow, "name" | "scopes" | "owner" | "expiresAt">,
		caller: AuditedCaller,
		createdAt: bigint,
	): Promise<{ readonly key: string; readonly row: AccessKeyRow }> {
		const key = randomBytes(32).toString("base64url");
		const ends = { revokedAt: undefined, lastUsedAt: undefined };
		const row: AccessKeyRow = { name, sha256: hashKey(key), ...grant, createdAt, createdBy: caller.name, ...ends };
		const audit = entryOf("key.created", caller, name, row.scopes.join("+"));
		if (!(await this.#stored.create({ of: row, audit }))) throw taken(name);
		this.#log.accessKeyCreated(row, caller.name);
		return { key, row };
	}

	/** Returns the keys that a caller may manage, by name. */
	list(caller: Principal): readonly ListedKey[] {
		const stored = this.#stored.all.map((key) => ({ ...key, configured: false as const }));
		const listed = [...stored, ...this.#configured].filter(({ owner }) => mayManage(caller, owner));
		return listed.toSorted((a, b) => (a.name < b.name ? -1 : Number(a.name > b.name)));
	}

	/**
	 * Revokes a key. A key that is revoked already stays as it is.
	 *
	 * @throws ServiceError `not_found`, `failed_precondition` for a key of the configuration, or that of the store
	 */
	async revoke(name: string, caller: Principal): Promise<AccessKeyRow> {
		// Another process may have created or revoked it.
		await this.#stored.refresh();
		const known = this.#stored.all.find((key) => key.name === name && mayManage(caller, key.owner));
		if (known === undefined) {
			if (this.#configured.some((key) => key.name === name && mayManage(caller, key.owner)))
				throw new ServiceError("failed_precondition", "The access key is set in the configuration; remove it there");
			throw new ServiceError("not_found", "There is no such access key");
		}
		if (known.revokedAt !== undefined) return known;
		await this.#stored.revoke(name, entryOf("key.revoked", caller, name));
		this.#log.accessKeyRevoked(name, caller.name);
		return this.#stored.all.find((key) => key.name === name) ?? known;
	}
}

/**
 * Returns the scopes and the owner of a key that a caller may make. The caller holds all of its scopes. A caller with an
 * owner makes keys of that owner only. Figures about the whole service are not for a key with an owner.
 *
 * @throws ServiceError `invalid_argument` that names the field, or `permission_denied`
 */
export function grantOf(
	asked: Pick<NewAccessKey, "scopes" | "owner">,
	caller: Principal,
): { readonly scopes: readonly Scope[]; readonly owner: string } {
	const unknown = asked.scopes.find((name) => scopes.every((scope) => scope !== name));
	if (unknown !== undefined) throw invalid("scopes", `has one that is not ${scopes.join(", ")}`);
	if (asked.owner !== "" && !OWNER.test(asked.owner))
		throw invalid("owner", "must be 1 to 64 letters, digits, dots, dashes or underscores");
	const granted = scopes.filter((scope) =>
		asked.scopes.length === 0 ? defaultScopes.has(scope) : asked.scopes.includes(scope),
	);
	const owner = asked.owner === "" ? (caller.owner ?? "") : asked.owner;
	if (!mayManage(caller, owner)) throw denied("The access key or client certificate has another owner", caller);
	const missing = granted.find((scope) => !caller.scopes.has(scope));
	if (missing !== undefined) throw denied(`The access key or client certificate lacks the scope "${missing}"`, caller);
	if (owner !== "" && granted.includes("metrics"))
		throw denied('An access key with an owner cannot have the scope "metrics"', caller);
	return { scopes: granted, owner };
}

/** Returns whether a caller manages keys of an owner; undefined and an empty text stand for none. */
function mayManage(caller: Principal, owner: string | undefined): boolean {
	return caller.owner === undefined || caller.owner === owner;
}

function invalid(field: string, mistake: string): ServiceError {
	return new ServiceError("invalid_argument", `${field} ${mistake}`);
}

function taken(name: string): ServiceError {
	return new ServiceError("already_exists", `There is an access key with the name "${name}"`);
}

function denied(message: string, { name }: Principal): ServiceError {
	return new ServiceError("permission_denied", message, { caller: name });
}
