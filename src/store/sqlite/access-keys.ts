import {
	ACCESS_KEY_COLUMNS,
	type AccessKeyRow,
	type AccessKeyUse,
	accessKeyFrom,
	accessKeyValues,
} from "../access-keys.ts";
import type { Statements } from "./statements.ts";

/** The access keys in SQLite. The contracts are those of `AccessKeyTable`; the caller of a change has begun a transaction. */

export function listAccessKeys(statements: Statements): AccessKeyRow[] {
	return statements.prepare("SELECT * FROM access_keys ORDER BY name").all().map(accessKeyFrom);
}

export function createAccessKey(statements: Statements, key: AccessKeyRow): boolean {
	const sql = `INSERT INTO access_keys (${ACCESS_KEY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`;
	return Number(statements.prepare(sql).run(...accessKeyValues(key)).changes) === 1;
}

export function revokeAccessKey(statements: Statements, { name, at }: AccessKeyUse): void {
	statements.prepare("UPDATE access_keys SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL").run(at, name);
}

export function touchAccessKeys(statements: Statements, uses: readonly AccessKeyUse[]): void {
	const sql = "UPDATE access_keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE name = ?";
	for (const { name, at } of uses) statements.prepare(sql).run(at, name);
}
