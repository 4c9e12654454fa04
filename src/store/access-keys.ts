import { bigint, blob, nullable, type Row, text } from "./values.ts";

/** An access key as the store keeps it. Times are microseconds since the Unix epoch. */
export interface AccessKeyRow {
	/** Unique among all stored keys, also among those that are revoked or have expired. */
	readonly name: string;
	/** SHA-256 of the key, 32 bytes. The store never has the key itself. */
	readonly sha256: Uint8Array;
	/** Names of scopes; at least one. */
	readonly scopes: readonly string[];
	/** Empty for a key without an owner. */
	readonly owner: string;
	readonly createdAt: bigint;
	/** Name of the caller that created it. */
	readonly createdBy: string;
	readonly expiresAt: bigint | undefined;
	readonly revokedAt: bigint | undefined;
	readonly lastUsedAt: bigint | undefined;
}

/** When a key was used last. */
export interface AccessKeyUse {
	readonly name: string;
	/** Microseconds since the Unix epoch. */
	readonly at: bigint;
}

/** The access keys of a store. A change resolves when it is on disk. Its methods fail as those of the store do. */
export interface AccessKeyTable {
	/** Returns all keys in the order of their names. */
	list(): Promise<readonly AccessKeyRow[]>;
	/** Stores a key. Returns false, and stores nothing, if there is a key with its name. */
	create(key: AccessKeyRow): Promise<boolean>;
	/** Marks a key as revoked, unless it is already. Has no effect if there is no such key. */
	revoke(name: string, at: bigint): Promise<void>;
	/** Saves the last uses of keys. An earlier use than the stored one has no effect. */
	touch(uses: readonly AccessKeyUse[]): Promise<void>;
}

/** The columns of a key, in the order of {@link accessKeyValues}. */
export const ACCESS_KEY_COLUMNS =
	"name, sha256, scopes, owner, created_at, created_by, expires_at, revoked_at, last_used_at";

/** Returns the values of a key's columns. */
export function accessKeyValues(key: AccessKeyRow) {
	const { name, sha256, scopes, owner, createdAt, createdBy, expiresAt, revokedAt, lastUsedAt } = key;
	const times = [expiresAt, revokedAt, lastUsedAt].map((time) => time ?? null);
	return [name, sha256, scopes.join("+"), owner, createdAt, createdBy, ...times] as const;
}

/** Reads the columns of a key. */
export function accessKeyFrom(row: Row): AccessKeyRow {
	return {
		name: text(row.name),
		sha256: blob(row.sha256),
		scopes: text(row.scopes).split("+"),
		owner: text(row.owner),
		createdAt: bigint(row.created_at),
		createdBy: text(row.created_by),
		expiresAt: nullable(bigint, row.expires_at),
		revokedAt: nullable(bigint, row.revoked_at),
		lastUsedAt: nullable(bigint, row.last_used_at),
	};
}
