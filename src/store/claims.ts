import type { Session } from "./session.ts";

/** What claims work. */
export interface Claims {
	/**
	 * Claims some work, or renews the claim, so that one process at a time does it.
	 *
	 * @param holder identifies the process
	 * @param now and `until`: the claim of another holder ends at its `until`. Microseconds since the Unix epoch
	 * @returns false when another holder has the claim
	 */
	claim(name: string, holder: string, now: bigint, until: bigint): Promise<boolean>;
}

/** A claim: see {@link Claims}. */
export interface Claim {
	readonly name: string;
	readonly holder: string;
	/** Microseconds since the Unix epoch, as `until`. */
	readonly now: bigint;
	readonly until: bigint;
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
	return store.claim(name, holder, BigInt(now) * 1000n, BigInt(now + milliseconds) * 1000n);
}
