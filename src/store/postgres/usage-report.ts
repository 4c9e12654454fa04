import { nameOf } from "../../usage/names.ts";
import {
	type ModelUsage,
	modelUsageFrom,
	modelUsageSql,
	readUsageReport,
	type UsagePeriod,
	type UsageQuery,
	type UsageReport,
	type UsageStatement,
	type UsageTotal,
	type UsedPeriodsQuery,
	usageStatements,
	usageTotalFrom,
	usageTotalsSql,
	usedPeriodsSql,
} from "../usage-report.ts";
import { bigint, nullable } from "../values.ts";
import { conditionsIn } from "./list-conversations.ts";
import { decoded } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeKey } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";

const SCHEMA = "conversation_updates.";

/** Sums up usage. */
export async function reportUsage(session: Session, query: UsageQuery): Promise<UsageReport> {
	const statements = usageStatements(query);
	const results = await session.query(...statements.map(queryOf));
	return readUsageReport(query, new Map(statements.map(({ kind }, n) => [kind, results[n] ?? []])), decoded);
}

/** Returns the starts of periods that have usage. */
export async function listUsedPeriods(session: Session, query: UsedPeriodsQuery): Promise<bigint[]> {
	const sql = new Sql();
	const dialect = { schema: SCHEMA, value: (value: unknown) => sql.value(value), encode: encodeKey };
	const [rows = []] = await session.query(sql.query(usedPeriodsSql(query, dialect)));
	return rows.map(({ start }) => bigint(start));
}

/** Returns the query of a statement of a report. */
export function queryOf({ build }: UsageStatement): Query {
	const sql = new Sql();
	const text = build({
		schema: SCHEMA,
		value: (value) => sql.value(value),
		encode: encodeKey,
		segments: (placeholder) => `
			SELECT (value ->> 0)::bigint AS period, (value ->> 1)::bigint AS length, (value ->> 2)::bigint AS first,
				(value ->> 3)::bigint AS beyond
			FROM json_array_elements(${placeholder}::json)
		`,
		sum: saturatingSum,
		conversationId: "CASE WHEN k.ledger = '' THEN '' ELSE k.id::text END",
		isSame: "c.conversation_id = k.id",
		isParent: `p.conversation_id = CASE WHEN up.id ~ '${UUID}' THEN up.id::uuid END`,
		matching(conditions) {
			const { joins, tests } = conditionsIn(sql, conditions);
			return `
				SELECT c.conversation_id FROM conversation_updates.conversations c ${joins.join(" ")}
				WHERE ${tests.join(" AND ")}
			`;
		},
		tagsOf: (alias) => `${alias}.conversation_id = c.conversation_id`,
		join: "JOIN",
		// The planner does not know how few rows a segment selects, and would read the whole table. OFFSET keeps it from that.
		lookUp: (table, test) => `CROSS JOIN LATERAL (SELECT * FROM ${table} u WHERE ${test} OFFSET 0) u`,
	});
	return sql.query(text);
}

/** Returns the sum of a column, as an integer of 64 bits that ends at its limits; 0 without rows. */
export function saturatingSum(column: string): string {
	return `least(greatest(coalesce(sum(${column}), 0), -9223372036854775808), 9223372036854775807)::bigint`;
}

const UUID = "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$";

export async function getUsageRange(session: Session, owner: string | undefined): Promise<UsagePeriod | undefined> {
	const [[row] = []] = await session.query({
		text: `
			SELECT min(start) AS first, max(start) + 96 AS beyond FROM conversation_updates.usage_sums
			WHERE length = 96 ${owner === undefined ? "" : "AND owner = $1"}
		`,
		values: owner === undefined ? [] : [encodeKey(nameOf(owner))],
	});
	const first = nullable(bigint, row?.first);
	return first === undefined ? undefined : { first, beyond: bigint(row?.beyond) };
}

export async function listUsageTotals(session: Session, after: string): Promise<UsageTotal[]> {
	const id = after === "" ? "00000000-0000-0000-0000-000000000000" : after;
	const [rows = []] = await session.query({ text: usageTotalsSql(SCHEMA, "id", saturatingSum, "$1"), values: [id] });
	return rows.map(usageTotalFrom);
}

export async function listModelUsage(session: Session): Promise<ModelUsage[]> {
	const text = modelUsageSql("conversation_updates.", (column) => `sum(${column})::double precision`);
	const [rows = []] = await session.query({ text });
	return rows.map((row) => modelUsageFrom(row, decoded));
}
