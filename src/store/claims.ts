import type { Session } from "./session.ts";

/** A claim of some work, so that one process at a time does it. */
export interface Claim {
	readonly name: string;
	/** Identifies the process. */
	readonly holder: string;
	/** The claim of another holder ends at its `until`. Microseconds since the Unix epoch. */
	readonly now: bigint;
	readonly until: bigint;
}

/** What claims work. */
export interface Claims {
	/** Claims some work, or renews the claim. Returns false when another holder has the claim. */
	readonly claim: (claim: Claim) => Promise<boolean>;
}

/** As {@link Claims.claim}. */
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

/** Claims some work for a time in milliseconds from now on, or ends the claim with 0: see {@link Claims}. */
export function claimFor(store: Claims, name: string, holder: string, milliseconds: number): Promise<boolean> {
	const now = Date.now();
	return store.claim({ name, holder, now: BigInt(now) * 1000n, until: BigInt(now + milliseconds) * 1000n });
}
