import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { invalid, ServiceError } from "../errors.ts";
import type { AccessKeyRow } from "../store/access.ts";
import type { Store } from "../store/store.ts";
import type { Logger } from "../telemetry/log.ts";
import { type AuditedCaller, entryOf } from "./audit.ts";
import {
	authorize,
	defaultScopes,
	hashKey,
	type KeyEntry,
	Keyring,
	microseconds,
	type Principal,
	requireName,
	type Scope,
	scopes,
} from "./keys.ts";

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

interface ConfiguredKey extends Pick<Principal, "name" | "scopes" | "owner"> {
	readonly configured: true;
}

export type ListedKey = ConfiguredKey | (AccessKeyRow & { readonly configured: false });

export type AccessKeyCalls = Pick<Store, "listAccessKeys" | "createAccessKey" | "revokeAccessKey" | "touchAccessKeys">;

/** Times are in milliseconds. */
export interface AccessKeysOptions {
	readonly configured: readonly KeyEntry[];
	/** Holders of the client certificates of the configuration, which are listed as the keys are. */
	readonly certificates?: readonly Principal[];
	readonly log: Pick<Logger, "emit" | "workFailed">;
	/** Time between two reads of the table; undefined if no other process writes it. */
	readonly refreshInterval?: number | undefined;
	/** Time between two writes of the last uses. */
	readonly flushInterval?: number;
}

/** Holder of all scopes, without an owner: a command on the machine of the service. */
export const COMMAND: Principal = Object.freeze({ name: "command", scopes: new Set(scopes), owner: undefined });
/** The service itself, as the caller that makes the keys of the first start. */
export const SERVICE: AuditedCaller = { name: "service", owner: undefined };
const FIRST_SCOPES: readonly Scope[] = [...defaultScopes, "score", "metrics", "keys"];
/** Milliseconds after which the key with which the first start opens the console ends. */
const CONSOLE_KEY_LIFETIME = 24 * 60 * 60 * 1000;
/** How long before its end a key is counted, in milliseconds: a week. */
export const EXPIRY_NOTICE = 7 * 86_400_000;
/** Milliseconds between two reads of the table, when other processes write it too. */
export const REFRESH_INTERVAL = 1_000;

/**
 * Creates, lists and revokes access keys for callers. A caller with an owner reaches the keys of that owner only. Every
 * change is logged and audited. The keyring follows the changes, also those of other processes; when keys were used last
 * is saved.
 */
export class AccessKeys implements AsyncDisposable {
	readonly keyring: Keyring;
	readonly #store: AccessKeyCalls;
	readonly #configured: readonly ConfiguredKey[];
	readonly #log: Pick<Logger, "emit" | "workFailed">;
	readonly #stop = new AbortController();
	/** Last uses that are not saved yet: milliseconds of Unix time by name. */
	#uses = new Map<string, number>();
	#rows: readonly AccessKeyRow[] = [];
	#work: readonly Promise<void>[] = [];
	#read: Promise<void> = Promise.resolve();

	private constructor(store: AccessKeyCalls, { configured, certificates = [], log }: AccessKeysOptions) {
		this.#store = store;
		this.#configured = [...configured, ...certificates].map(({ name, scopes, owner }) => {
			return { name, scopes, owner, configured: true };
		});
		this.#log = log;
		this.keyring = new Keyring(configured, (name) => this.#uses.set(name, Date.now()));
	}

	/** Reads the stored keys, and follows them until it is disposed of. */
	static async open(store: AccessKeyCalls, options: AccessKeysOptions): Promise<AccessKeys> {
		const { refreshInterval, flushInterval = 10_000 } = options;
		const keys = new AccessKeys(store, options);
		await keys.refresh();
		keys.#work = [
			keys.#repeat(flushInterval, () => keys.#flush()),
			...(refreshInterval === undefined ? [] : [keys.#repeat(refreshInterval, () => keys.refresh())]),
		];
		return keys;
	}

	/** Whether there is a key or certificate with which requests are accepted now. */
	get hasValid(): boolean {
		return this.#configured.length > 0 || this.#valid().length > 0;
	}

	/**
	 * Number of valid keys that expire in less than {@link EXPIRY_NOTICE}, but not of those that the service made: nobody needs
	 * another key when that of the first start for the console ends.
	 */
	get expiring(): number {
		const soon = microseconds(Date.now() + EXPIRY_NOTICE);
		const isExpiring = ({ createdBy, expiresAt }: AccessKeyRow) =>
			expiresAt !== undefined && expiresAt < soon && createdBy !== SERVICE.name;
		return this.#valid().filter(isExpiring).length;
	}

	/**
	 * Creates a key.
	 *
	 * @throws ServiceError `invalid_argument`, `permission_denied` as {@link grantOf}, `already_exists`, or that of the store
	 */
	async create(asked: NewAccessKey, caller: Principal): Promise<{ readonly key: string; readonly row: AccessKeyRow }> {
		const { name, expiresAt } = asked;
		requireName("name", name);
		if (name === COMMAND.name || name === SERVICE.name) throw invalid("name", "is reserved");
		if (expiresAt !== undefined && expiresAt <= microseconds(Date.now()))
			throw invalid("expires_at", "must be in the future");
		const grant = grantOf(asked, caller);
		if (this.#configured.some((configured) => configured.name === name)) throw taken(name);
		return await this.#create({ name, ...grant, expiresAt }, caller);
	}

	/**
	 * Creates the keys of the first start: `default`, and one that opens the console. That one ends after a day, because
	 * browsers may keep an address with a key.
	 *
	 * @param given scopes of both. Default: `default` posts, reads and manages keys, the other one can only read
	 * @returns undefined if there are stored keys, even revoked ones
	 */
	async createFirst(
		withConsole: boolean,
		given?: readonly Scope[],
	): Promise<{ readonly key: string; readonly consoleKey: string | undefined } | undefined> {
		if (this.#rows.length > 0) return undefined;
		const create = async (name: string, scopes: readonly Scope[], expiresAt?: bigint) =>
			(await this.#create({ name, scopes, owner: "", expiresAt }, SERVICE)).key;
		const key = await create("default", given ?? FIRST_SCOPES);
		const end = microseconds(Date.now() + CONSOLE_KEY_LIFETIME);
		return { key, consoleKey: withConsole ? await create("console", given ?? ["read"], end) : undefined };
	}

	async #create(
		grant: Pick<AccessKeyRow, "name" | "scopes" | "owner" | "expiresAt">,
		caller: AuditedCaller,
	): Promise<{ readonly key: string; readonly row: AccessKeyRow }> {
		const key = randomBytes(32).toString("base64url");
		const made = { createdAt: microseconds(Date.now()), createdBy: caller.name };
		const row = { ...grant, sha256: hashKey(key), ...made, revokedAt: undefined, lastUsedAt: undefined };
		const audit = entryOf("key.created", caller, row.name, row.scopes.join("+"));
		const isNew = await this.#store.createAccessKey({ of: row, audit });
		await this.refresh();
		if (!isNew) throw taken(row.name);
		const { name, scopes, owner } = grant;
		this.#log.emit("access_key_created", { name, scopes, owner, caller: caller.name });
		return { key, row };
	}

	/** Returns the keys that a caller may manage, by name, with their last uses. */
	list(caller: Principal): readonly ListedKey[] {
		const stored = this.#rows.map((row) => {
			const used = this.#uses.get(row.name);
			return { ...row, ...(used !== undefined && { lastUsedAt: microseconds(used) }), configured: false as const };
		});
		const listed = [...stored, ...this.#configured].filter(({ owner }) => mayManage(caller, owner));
		return listed.toSorted((a, b) => (a.name < b.name ? -1 : Number(a.name > b.name)));
	}

	/**
	 * Revokes a key, and ends the watches of its holder. A key that is revoked already stays as it is.
	 *
	 * @throws ServiceError `not_found`, `failed_precondition` for a key of the configuration, or that of the store
	 */
	async revoke(name: string, caller: Principal): Promise<AccessKeyRow> {
		// Another process may have created or revoked it.
		await this.refresh();
		const known = this.#rows.find((row) => row.name === name && mayManage(caller, row.owner));
		if (known === undefined) {
			if (this.#configured.some((key) => key.name === name && mayManage(caller, key.owner)))
				throw new ServiceError("failed_precondition", "The access key is set in the configuration; remove it there");
			throw new ServiceError("not_found", "There is no such access key");
		}
		if (known.revokedAt !== undefined) return known;
		const audit = entryOf("key.revoked", caller, name);
		await this.#store.revokeAccessKey({ of: { name, at: microseconds(Date.now()) }, audit });
		await this.refresh();
		this.#log.emit("access_key_revoked", { name, caller: caller.name });
		return this.#rows.find((row) => row.name === name) ?? known;
	}

	/** Takes over the keys of the store as they are now. */
	async refresh(): Promise<void> {
		// One after the other, so that an earlier state never replaces a later one.
		this.#read = this.#read
			.catch(() => undefined)
			.then(async () => {
				this.#rows = await this.#store.listAccessKeys();
				this.keyring.setStored(this.#rows);
			});
		await this.#read;
	}

	#valid(): readonly AccessKeyRow[] {
		return this.#rows.filter((row) => !hasEnded(row));
	}

	async #flush(): Promise<void> {
		if (this.#uses.size === 0) return;
		const uses = this.#uses;
		this.#uses = new Map();
		try {
			await this.#store.touchAccessKeys([...uses].map(([name, at]) => ({ name, at: microseconds(at) })));
		} catch (error) {
			this.#uses = new Map([...uses, ...this.#uses]);
			throw error;
		}
		await this.refresh();
	}

	async #repeat(interval: number, work: () => Promise<void>): Promise<void> {
		const { signal } = this.#stop;
		const wait = () => delay(interval, true, { signal, ref: false }).catch(() => false);
		while (await wait()) await work().catch((error: unknown) => this.#log.workFailed("access keys", error));
	}

	/** Saves the last uses. */
	async [Symbol.asyncDispose](): Promise<void> {
		this.#stop.abort();
		await Promise.all(this.#work);
		await this.#flush().catch((error: unknown) => this.#log.workFailed("access keys", error));
	}
}

export function hasEnded({ revokedAt, expiresAt }: Pick<AccessKeyRow, "revokedAt" | "expiresAt">): boolean {
	return revokedAt !== undefined || (expiresAt !== undefined && expiresAt <= microseconds(Date.now()));
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
	if (asked.owner !== "") requireName("owner", asked.owner);
	const granted = scopes.filter((scope) =>
		asked.scopes.length === 0 ? defaultScopes.has(scope) : asked.scopes.includes(scope),
	);
	const owner = asked.owner === "" ? (caller.owner ?? "") : asked.owner;
	if (!mayManage(caller, owner)) throw denied("The access key or client certificate has another owner", caller);
	for (const scope of granted) authorize(caller, scope);
	if (owner !== "" && granted.includes("metrics"))
		throw denied('An access key with an owner cannot have the scope "metrics"', caller);
	return { scopes: granted, owner };
}

/** Returns whether a caller manages keys of an owner; undefined and an empty text stand for none. */
function mayManage(caller: Principal, owner: string | undefined): boolean {
	return caller.owner === undefined || caller.owner === owner;
}

function taken(name: string): ServiceError {
	return new ServiceError("already_exists", `There is an access key with the name "${name}"`);
}

function denied(message: string, { name }: Principal): ServiceError {
	return new ServiceError("permission_denied", message, { caller: name });
}
