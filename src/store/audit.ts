import type { Session } from "./session.ts";
import { columnsOf, readRow } from "./typed-rows.ts";
import { bigint } from "./values.ts";

/** What a caller did. */
export interface NewAuditEntry {
	/** Microseconds since the Unix epoch. */
	readonly at: bigint;
	/** Such as `key.created`. */
	readonly action: string;
	/** Name of the caller. */
	readonly caller: string;
	/** Owner of the caller; empty for none. */
	readonly owner: string;
	/** What it was done to: a name, or the digest of the id of a conversation. */
	readonly subject: string;
	readonly details: string;
}

export interface AuditEntry extends NewAuditEntry {
	/** Grows with each entry, from 1. */
	readonly number: bigint;
}

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
	async listAudit(session: Session, { owner, before, limit }: AuditQuery): Promise<AuditEntry[]> {
		const tests = [...(owner === undefined ? [] : ["owner = ?"]), ...(before === undefined ? [] : ["number < ?"])];
		const rows = await session.all(
			`SELECT * FROM ${session.dialect.schema}audit ${tests.length === 0 ? "" : `WHERE ${tests.join(" AND ")}`}
			ORDER BY number DESC LIMIT ?`,
			...[owner, before, limit].filter((value) => value !== undefined),
		);
		return rows.map((row) => readRow("audit", row));
	},
};

/** Maximum number of entries, and of notices. */
export const MAX_KEPT = 1_000_000;
/** Microseconds for which entries and notices are kept: 400 days, so that a year can be looked at. */
export const KEPT_FOR = 400n * 86_400n * 1_000_000n;
/** Maximum number of old rows that are removed with each new one. */
export const REMOVED = 100;

/** Adds an entry after all others, and removes some of those that are too old or too many. */
export async function addAudit(session: Session, entry: NewAuditEntry): Promise<void> {
	const columns = columnsOf("audit", entry);
	const names = Object.keys(columns);
	const table = `${session.dialect.schema}audit`;
	for (;;) {
		// Of two transactions with the same number, the second one waits for the first, and then takes the next number.
		const added = await session.all(
			`INSERT INTO ${table} (number, ${names.join()})
			VALUES ((SELECT coalesce(max(number), 0) + 1 FROM ${table}), ${names.map(() => "?").join()})
			ON CONFLICT DO NOTHING RETURNING number`,
			...Object.values(columns).map((value) => value ?? null),
		);
		const [row] = added;
		if (row === undefined) continue;
		await session.all(
			`DELETE FROM ${table} WHERE number IN (SELECT number FROM ${table} ORDER BY number LIMIT ${REMOVED})
				AND (number <= ? OR at < ?)`,
			...[bigint(row.number) - BigInt(MAX_KEPT), entry.at - KEPT_FOR],
		);
		return;
	}
}

export const auditWrites = { addAudit };

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
