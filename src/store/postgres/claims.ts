import type { Connections } from "./connections.ts";

/** Claims some work in a transaction of its own: see `Store.claim`. */
export async function claim(
	connections: Connections,
	name: string,
	holder: string,
	now: bigint,
	until: bigint,
): Promise<boolean> {
	return await connections.transaction(async (transaction) => {
		const [rows = []] = await transaction.query({
			text: `
				INSERT INTO conversation_updates.claims AS c VALUES ($1, $2, $3)
				ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
				WHERE c.holder = excluded.holder OR c.until <= $4
				RETURNING 1 AS taken
			`,
			values: [name, holder, until, now],
		});
		await transaction.commit();
		return rows.length > 0;
	});
}
