import type { Session } from "./session.ts";
import { columnsOf, insertNew, type RowOf, selectRows } from "./typed-rows.ts";
import { bigint } from "./values.ts";

/**
 * What a caller did: an action, such as `key.created`, to a subject, which is a name or the digest of the id of a conversation.
 * The number grows with each entry, from 1.
 */
export type AuditEntry = RowOf<"audit">;
export type NewAuditEntry = Omit<AuditEntry, "number">;

/** Which entries are listed. */
export interface AuditQuery {
	/** Only of callers with this owner; undefined for all. */
	readonly owner: string | undefined;
	/** Only those with a smaller number. */
	readonly before: bigint | undefined;
	readonly limit: number;
}

export const auditReads = {
	/** Returns entries, the newest first. */
	listAudit: (session: Session, { owner, before, limit }: AuditQuery): Promise<AuditEntry[]> =>
		selectRows(
			session,
			"audit",
			[
				["owner = ?", owner],
				["number < ?", before],
			],
			"number DESC",
			limit,
		),
};

/** Maximum number of entries, and of notices. */
export const MAX_KEPT = 1_000_000;
/** Microseconds for which entries and notices are kept: 400 days, so that a year can be looked at. */
export const KEPT_FOR = 400n * 86_400n * 1_000_000n;
/** Maximum number of old rows that are removed with each new one. */
export const REMOVED = 100;

/** Adds an entry as {@link addAudits} does. */
export function addAudit(session: Session, entry: NewAuditEntry): Promise<void> {
	return addAudits(session, [entry]);
}

/** Adds entries of one time after all others, and removes some of those that are too old or too many. */
export async function addAudits(session: Session, [first, ...others]: readonly NewAuditEntry[]): Promise<void> {
	if (first === undefined) return;
	const table = `${session.dialect.schema}audit`;
	let number: bigint;
	do {
		const [newest] = await session.all(`SELECT coalesce(max(number), 0) AS number FROM ${table}`);
		number = bigint(newest?.number) + 1n;
		// Of two transactions with the same number, the second one waits for the first, and then takes the next number.
	} while (!(await insertNew(session, "audit", { ...first, number })));
	const rows = others.map((entry, n) => columnsOf("audit", { ...entry, number: number + BigInt(n) + 1n }));
	await session.insert("audit", rows);
	await session.all(
		`DELETE FROM ${table} WHERE number IN (SELECT number FROM ${table} ORDER BY number LIMIT ${REMOVED + rows.length})
			AND (number <= ? OR at < ?)`,
		...[number + BigInt(rows.length - MAX_KEPT), first.at - KEPT_FOR],
	);
}

/** What a caller asks to be written, with the entry about it. */
export interface Audited<Argument> {
	readonly of: Argument;
	readonly audit: NewAuditEntry;
}

/**
 * Returns a write that adds the entry about it in the same transaction. One that does nothing, and returns false or undefined,
 * leaves no entry.
 */
export function audited<Argument, Result extends boolean | number | object | undefined>(
	write: (session: Session, argument: Argument) => Promise<Result>,
): (session: Session, argument: Argument | Audited<Argument>) => Promise<Result> {
	return async (session, argument) => {
		if (!isAudited(argument)) return await write(session, argument);
		const result = await write(session, argument.of);
		if (result !== false && result !== undefined) await addAudit(session, argument.audit);
		return result;
	};
}

function isAudited<Argument>(argument: Argument | Audited<Argument>): argument is Audited<Argument> {
	return typeof argument === "object" && argument !== null && "of" in argument && "audit" in argument;
}

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
export async function listAccessKeys(session: Session): Promise<AccessKeyRow[]> {
	const rows = await selectRows(session, "access_keys", [], "name");
	return rows.map((row) => ({ ...row, scopes: row.scopes.split("+") }));
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

export const accessKeyWrites = {
	/** Stores a key. Returns false, and stores nothing, if there is a key with its name. */
	createAccessKey: audited((session: Session, key: AccessKeyRow) =>
		insertNew(session, "access_keys", { ...key, scopes: key.scopes.join("+") }),
	),
	revokeAccessKey: audited(revokeAccessKey),
	touchAccessKeys,
};
