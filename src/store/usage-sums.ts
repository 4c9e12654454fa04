import { ALL_TIME, PERIODS } from "./usage-plan.ts";
import { AMOUNT_COLUMNS, IS_ZERO, SUMS_KEY } from "./usage-sql.ts";

/** The SQL of both engines that makes the sums over conversations, and the days with usage, equal to the ledger. */

/** A table whose rows of a day, or of all time, follow from other tables. */
export interface DerivedRows {
	readonly table: string;
	readonly columns: readonly string[];
	/** Query for the rows as they should be. */
	readonly wanted: string;
	/** Condition for the rows of the table. */
	readonly stored: string;
}

/** Length of a day in quarters of an hour. */
const DAY = 96n;
const COLUMNS = [...SUMS_KEY, ...AMOUNT_COLUMNS];
const DAY_COLUMNS = ["day", "model", "conversation", "usage_id", "agent_kind"];

/** SQL for the day (UTC) of a quarter of an hour. */
const DAY_OF = "(quarter - (quarter % 96 + 96) % 96) / 96";

/** Returns the query for all days that have rows in the ledger or in what is derived from it. */
export function usageDaysSql(schema: string): string {
	const sums = `${schema}usage_sums WHERE length <> ${ALL_TIME}`;
	return `
		SELECT ${DAY_OF} AS day FROM ${schema}usage_ledger UNION SELECT day FROM ${schema}usage_days
		UNION SELECT ${DAY_OF.replaceAll("quarter", "start")} FROM ${sums} ORDER BY 1
	`;
}

/**
 * Returns what is derived from the ledger for a day.
 *
 * @param day days since the Unix epoch (UTC); undefined for the sums of all time, which follow from those of the days
 * @param sum returns the sum of a column, as an integer of 64 bits that ends at its limits
 */
export function derivedRows(schema: string, day: bigint | undefined, sum: (column: string) => string): DerivedRows[] {
	const sumsOf = (alias: string) => AMOUNT_COLUMNS.map((name) => `${sum(`${alias}.${name}`)} AS ${name}`).join();
	const ofSums = { table: `${schema}usage_sums`, columns: COLUMNS };
	if (day === undefined)
		return [
			{
				...ofSums,
				stored: `length = ${ALL_TIME} AND NOT (${IS_ZERO})`,
				wanted: nonZero(`
					SELECT ${ALL_TIME} AS length, CASE WHEN u.start < 0 THEN -${ALL_TIME} ELSE 0 END AS start, u.model, u.usage_id,
						u.agent_kind, u.sender, u.owner, ${sumsOf("u")}
					FROM ${schema}usage_sums u WHERE u.length = ${DAY} GROUP BY 1, 2, 3, 4, 5, 6, 7
				`),
			},
		];
	const [first, beyond] = [day * DAY, (day + 1n) * DAY];
	const lengths = PERIODS.filter((length) => length <= DAY);
	const periods = lengths.map((length) => `SELECT ${length} AS length`).join(" UNION ALL ");
	return [
		{
			...ofSums,
			stored: `length IN (${lengths.join()}) AND start >= ${first} AND start < ${beyond} AND NOT (${IS_ZERO})`,
			wanted: nonZero(`
				SELECT p.length AS length, l.quarter - (l.quarter % p.length + p.length) % p.length AS start, l.model, l.usage_id,
					l.agent_kind, k.sender, k.owner, ${sumsOf("l")}
				FROM ${schema}usage_ledger l JOIN ${schema}usage_conversations k ON k.id = l.conversation
				CROSS JOIN (${periods}) p
				WHERE l.quarter >= ${first} AND l.quarter < ${beyond} GROUP BY 1, 2, 3, 4, 5, 6, 7
			`),
		},
		{
			table: `${schema}usage_days`,
			columns: DAY_COLUMNS,
			stored: `day = ${day}`,
			wanted: `
				SELECT DISTINCT ${day} AS day, model, conversation, usage_id, agent_kind FROM ${schema}usage_ledger
				WHERE quarter >= ${first} AND quarter < ${beyond}
			`,
		},
	];
}

function nonZero(query: string): string {
	return `SELECT * FROM (${query}) w WHERE NOT (${IS_ZERO})`;
}

/** Returns the query for the number of rows that are missing, or should not be there. */
export function differenceSql({ table, columns, wanted, stored }: DerivedRows): string {
	const found = `SELECT ${columns.join()} FROM ${table} WHERE ${stored}`;
	return `
		SELECT (SELECT count(*) FROM (SELECT * FROM (${wanted}) x EXCEPT ${found}) missing)
			+ (SELECT count(*) FROM (${found} EXCEPT SELECT * FROM (${wanted}) x) wrong) AS differences
	`;
}

/** Returns the statements that replace the rows. */
export function replaceSql({ table, columns, wanted, stored }: DerivedRows): readonly [remove: string, add: string] {
	// A row whose amounts are zero has the key of a wanted one, or of none.
	const all = stored.replace(` AND NOT (${IS_ZERO})`, "");
	return [`DELETE FROM ${table} WHERE ${all}`, `INSERT INTO ${table} (${columns.join()}) ${wanted}`];
}
