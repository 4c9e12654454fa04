import { audited } from "./audit.ts";
import type { Session } from "./session.ts";
import { insertNew, type RowOf, selectRows } from "./typed-rows.ts";

/**
 * An access key as the store keeps it. Times are microseconds since the Unix epoch. Its name is unique among all stored keys,
 * also among those that are revoked or have expired.
 */
export interface AccessKeyRow extends Omit<RowOf<"access_keys">, "scopes"> {
	/** Names of scopes; at least one. */
	readonly scopes: readonly string[];
}

/** When a key was used last, or revoked. */
export interface AccessKeyUse {
	readonly name: string;
	/** Microseconds since the Unix epoch. */
	readonly at: bigint;
}

/** Returns all keys in the order of their names. */
async function listAccessKeys(session: Session): Promise<AccessKeyRow[]> {
	const rows = await selectRows(session, "access_keys", [], "name");
	return rows.map((row) => ({ ...row, scopes: row.scopes.split("+") }));
}

/** Stores a key. Returns false, and stores nothing, if there is a key with its name. */
async function createAccessKey(session: Session, key: AccessKeyRow): Promise<boolean> {
	return await insertNew(session, "access_keys", { ...key, scopes: key.scopes.join("+") });
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
