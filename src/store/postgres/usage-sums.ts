import { derivedRows, differenceSql, replaceSql, usageDaysSql } from "../usage-sums.ts";
import { bigint, integer } from "../values.ts";
import type { Connections } from "./connections.ts";
import type { Session } from "./transaction.ts";
import { saturatingSum } from "./usage-report.ts";

const SCHEMA = "conversation_updates.";

export async function listUsageDays(session: Session): Promise<bigint[]> {
	const [rows = []] = await session.query({ text: usageDaysSql(SCHEMA) });
	return rows.map(({ day }) => bigint(day));
}

/** Corrects sums of usage: see `Store.correctUsageSums`. */
export async function correctUsageSums(connections: Connections, day: bigint | undefined): Promise<boolean> {
	const derived = derivedRows(SCHEMA, day, saturatingSum);
	return await connections.transaction(async (transaction) => {
		// Whoever writes to the ledger writes the sums, too, and waits. The statements after this one see what others wrote.
		await transaction.query({ text: `LOCK TABLE ${SCHEMA}usage_sums IN SHARE ROW EXCLUSIVE MODE` });
		const results = await transaction.query(...derived.map((rows) => ({ text: differenceSql(rows) })));
		const wrong = derived.filter((_, n) => integer(results[n]?.[0]?.differences) > 0);
		if (wrong.length > 0)
			await transaction.commit(...wrong.flatMap((rows) => replaceSql(rows).map((text) => ({ text }))));
		return wrong.length > 0;
	});
}
