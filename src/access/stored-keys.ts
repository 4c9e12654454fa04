import { setTimeout as delay } from "node:timers/promises";
import type { AccessKeyRow, AccessKeyTable } from "../store/access-keys.ts";
import type { Audited, NewAuditEntry } from "../store/audit.ts";
import { type KeyEntry, Keyring, type StoredKey, scopes } from "./keys.ts";

/** What {@link StoredKeys} reports. */
interface StoredKeysLog {
	/** An access key expires in less than {@link EXPIRY_NOTICE}. */
	accessKeyExpires(name: string, expiresAt: Date): void;
	/** Background work failed and will be tried again. */
	workFailed(where: string, error: unknown): void;
}

/** Settings of {@link StoredKeys}. Times are in milliseconds. */
export interface StoredKeysOptions {
	/** Keys of the configuration. */
	readonly configured: readonly KeyEntry[];
	readonly log: StoredKeysLog;
	/** Time between two reads of the table; undefined if no other process writes it. */
	readonly refreshInterval?: number | undefined;
	/** Time between two writes of the last uses. */
	readonly flushInterval?: number;
}

/** Who makes the keys of the first start. */
export const SERVICE = "service";
/** How long before its end a key is reported, in milliseconds: a week. */
export const EXPIRY_NOTICE = 7 * 86_400_000;
/** Milliseconds between two reports of the same key. */
const REPORT_INTERVAL = 86_400_000;
/** Milliseconds between two reads of the table, when other processes write it too. */
export const REFRESH_INTERVAL = 1_000;

/**
 * The access keys in the store, and the keyring that has them and those of the configuration. It follows changes of other
 * processes, saves when keys were used last, and reports keys that expire soon.
 */
export class StoredKeys implements AsyncDisposable {
	readonly keyring: Keyring;
	readonly #table: AccessKeyTable;
	readonly #log: StoredKeysLog;
	readonly #stop = new AbortController();
	/** Last uses that are not saved yet: milliseconds of Unix time by name. */
	#uses = new Map<string, number>();
	/** When each key was reported because it expires soon. */
	readonly #reported = new Map<string, number>();
	#keys: readonly AccessKeyRow[] = [];
	#work: readonly Promise<void>[] = [];
	/** The last read of the table. */
	#read: Promise<void> = Promise.resolve();

	private constructor(table: AccessKeyTable, configured: readonly KeyEntry[], log: StoredKeysLog) {
		this.#table = table;
		this.#log = log;
		this.keyring = new Keyring(configured, (name) => this.#uses.set(name, Date.now()));
	}

	/**
	 * Reads the stored keys, and follows them until it is disposed of.
	 *
	 * @throws ServiceError when the store fails
	 */
	static async open(table: AccessKeyTable, options: StoredKeysOptions): Promise<StoredKeys> {
		const { configured, log, refreshInterval, flushInterval = 10_000 } = options;
		const stored = new StoredKeys(table, configured, log);
		await stored.refresh();
		stored.#work = [
			stored.#repeat(flushInterval, () => stored.#flush()),
			...(refreshInterval === undefined ? [] : [stored.#repeat(refreshInterval, () => stored.refresh())]),
		];
		return stored;
	}

	/** All stored keys, with their last uses, in the order of their names. */
	get all(): readonly AccessKeyRow[] {
		return this.#keys.map((key) => {
			const used = this.#uses.get(key.name);
			return used === undefined ? key : { ...key, lastUsedAt: microseconds(used) };
		});
	}

	/** The stored keys with which requests are accepted now. */
	get valid(): readonly AccessKeyRow[] {
		const now = microseconds(Date.now());
		return this.#keys.filter(
			({ revokedAt, expiresAt }) => revokedAt === undefined && (expiresAt === undefined || expiresAt > now),
		);
	}

	/** Number of valid keys that expire in less than {@link EXPIRY_NOTICE}, but not of those that the service made. */
	get expiring(): number {
		return this.#expiring().length;
	}

	/**
	 * Stores a key, with which requests are accepted from then on. Returns false if a key with its name is stored.
	 *
	 * @throws ServiceError when the store fails
	 */
	async create(key: Audited<AccessKeyRow>): Promise<boolean> {
		const isNew = await this.#table.create(key);
		await this.refresh();
		return isNew;
	}

	/**
	 * Revokes a key, and ends the watches of its holder.
	 *
	 * @throws ServiceError when the store fails
	 */
	async revoke(name: string, audit: NewAuditEntry): Promise<void> {
		await this.#table.revoke({ of: { name, at: microseconds(Date.now()) }, audit });
		await this.refresh();
	}

	/** Takes over the keys of the store as they are now. */
	async refresh(): Promise<void> {
		// One after the other, so that an earlier state never replaces a later one.
		this.#read = this.#read
			.catch(() => undefined)
			.then(async () => {
				this.#keys = await this.#table.list();
				this.keyring.setStored(this.#keys.map(storedKey));
				this.#reportExpiring();
			});
		await this.#read;
	}

	/** Returns the names and the ends, in milliseconds, of the keys that {@link expiring} counts. */
	#expiring(): readonly { readonly name: string; readonly end: number }[] {
		const soon = Date.now() + EXPIRY_NOTICE;
		return this.valid.flatMap(({ name, createdBy, expiresAt }) => {
			// The key with which the first start opens the console is for a day only, and nobody needs another one.
			if (expiresAt === undefined || createdBy === SERVICE) return [];
			const end = milliseconds(expiresAt);
			return end < soon ? { name, end } : [];
		});
	}

	#reportExpiring(): void {
		const now = Date.now();
		for (const { name, end } of this.#expiring()) {
			if (now - (this.#reported.get(name) ?? Number.NEGATIVE_INFINITY) < REPORT_INTERVAL) continue;
			this.#reported.set(name, now);
			this.#log.accessKeyExpires(name, new Date(end));
		}
	}

	async #flush(): Promise<void> {
		this.#reportExpiring();
		if (this.#uses.size === 0) return;
		const uses = this.#uses;
		this.#uses = new Map();
		try {
			await this.#table.touch([...uses].map(([name, at]) => ({ name, at: microseconds(at) })));
		} catch (error) {
			this.#uses = new Map([...uses, ...this.#uses]);
			throw error;
		}
		await this.refresh();
	}

	/** Runs work again and again until this object is disposed of. */
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

function storedKey({ name, scopes: granted, owner, sha256, expiresAt, revokedAt }: AccessKeyRow): StoredKey {
	return {
		name,
		// A newer release may have stored scopes that this one does not know.
		scopes: new Set(scopes.filter((scope) => granted.includes(scope))),
		owner: owner === "" ? undefined : owner,
		hash: sha256,
		expiresAt: expiresAt === undefined ? undefined : milliseconds(expiresAt),
		revokedAt: revokedAt === undefined ? undefined : milliseconds(revokedAt),
	};
}

/** Returns a time of the store, in microseconds, as milliseconds. */
function milliseconds(time: bigint): number {
	return Number(time / 1000n);
}

/** Returns a time in milliseconds as the store has it, in microseconds. */
export function microseconds(time: number): bigint {
	return BigInt(time) * 1000n;
}
