import {
	ACCESS_KEY_COLUMNS,
	type AccessKeyRow,
	type AccessKeyUse,
	accessKeyFrom,
	accessKeyValues,
} from "../access-keys.ts";
import type { Connections } from "./connections.ts";
import type { Query, Session } from "./transaction.ts";

/** The access keys in PostgreSQL. The contracts are those of `AccessKeyTable`. */

const KEYS = "conversation_updates.access_keys";

export async function listAccessKeys(session: Session): Promise<AccessKeyRow[]> {
	const text = `SELECT ${ACCESS_KEY_COLUMNS} FROM ${KEYS} ORDER BY name`;
	const [rows = []] = await session.query({ name: "access_keys", text });
	return rows.map(accessKeyFrom);
}

/** Returns the query that stores a key unless its name exists. It returns a row if it has stored the key. */
export function insertAccessKey(key: AccessKeyRow): Query {
	const text = `
		INSERT INTO ${KEYS} (${ACCESS_KEY_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT DO NOTHING RETURNING name
	`;
	return { text, values: accessKeyValues(key) };
}

export async function createAccessKey(connections: Connections, key: AccessKeyRow): Promise<boolean> {
	return await connections.transaction(async (transaction) => {
		const [created = []] = await transaction.commit(insertAccessKey(key));
		return created.length === 1;
	});
}

export function revokeAccessKey(name: string, at: bigint): Query {
	return { text: `UPDATE ${KEYS} SET revoked_at = $1 WHERE name = $2 AND revoked_at IS NULL`, values: [at, name] };
}

export function touchAccessKeys(uses: readonly AccessKeyUse[]): Query {
	return {
		text: `
			UPDATE ${KEYS} k SET last_used_at = greatest(k.last_used_at, used.at)
			FROM unnest($1::text[], $2::bigint[]) AS used (name, at) WHERE k.name = used.name
		`,
		values: [uses.map(({ name }) => name), uses.map(({ at }) => at)],
	};
}
