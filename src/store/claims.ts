import type { Session } from "./session.ts";

/** A claim of some work, so that one process at a time does it: see `Store.claim`. */
export interface Claim {
	readonly name: string;
	readonly holder: string;
	/** Microseconds since the Unix epoch, as `until`. */
	readonly now: bigint;
	readonly until: bigint;
}

/** Claims some work, or renews the claim. Returns false when another holder has it. */
export async function claim(
	{ all, dialect: { schema } }: Session,
	{ name, holder, now, until }: Claim,
): Promise<boolean> {
	const rows = await all(
		`INSERT INTO ${schema}claims AS c (name, holder, until) VALUES (?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE c.holder = excluded.holder OR c.until <= ? RETURNING name`,
		name,
		holder,
		until,
		now,
	);
	return rows.length > 0;
}
