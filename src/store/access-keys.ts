import { audited } from "./audit.ts";
import { insertNew, type Session } from "./session.ts";
import { columnsOf, readRow } from "./typed-rows.ts";

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

/** When a key was used last, or revoked. */
export interface AccessKeyUse {
	readonly name: string;
	/** Microseconds since the Unix epoch. */
	readonly at: bigint;
}

/** Returns all keys in the order of their names. */
async function listAccessKeys({ all, dialect: { schema } }: Session): Promise<AccessKeyRow[]> {
	const rows = await all(`SELECT * FROM ${schema}access_keys ORDER BY name`);
	return rows.map((row) => {
		const key = readRow("access_keys", row);
		return { ...key, scopes: key.scopes.split("+") };
	});
}

/** Stores a key. Returns false, and stores nothing, if there is a key with its name. */
async function createAccessKey(session: Session, key: AccessKeyRow): Promise<boolean> {
	return await insertNew(session, "access_keys", columnsOf("access_keys", { ...key, scopes: key.scopes.join("+") }));
}

/** Marks a key as revoked. Returns false, and changes nothing, if there is no such key or it is revoked already. */
async function revokeAccessKey({ all, dialect: { schema } }: Session, { name, at }: AccessKeyUse): Promise<boolean> {
	const update = `UPDATE ${schema}access_keys SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL RETURNING name`;
	return (await all(update, at, name)).length > 0;
}

/** Saves the last uses of keys. An earlier use than the stored one has no effect. */
async function touchAccessKeys({ all, dialect: { schema } }: Session, uses: readonly AccessKeyUse[]): Promise<void> {
	for (const { name, at } of uses)
		await all(
			`UPDATE ${schema}access_keys SET last_used_at = ? WHERE name = ? AND coalesce(last_used_at, 0) < ?`,
			at,
			name,
			at,
		);
}

export const accessKeyReads = { listAccessKeys };
export const accessKeyWrites = {
	createAccessKey: audited(createAccessKey),
	revokeAccessKey: audited(revokeAccessKey),
	touchAccessKeys,
};
