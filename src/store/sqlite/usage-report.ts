import type { SQLInputValue } from "node:sqlite";
import { nameOf } from "../../usage/names.ts";
import {
	type ModelUsage,
	modelUsageFrom,
	modelUsageSql,
	readUsageReport,
	type UsageDialect,
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
import { bigint, nullable, type Row, text } from "../values.ts";
import { conditionsOf, parametersOf } from "./conditions.ts";
import type { Statements } from "./statements.ts";

/** Sums up usage. */
export function reportUsage(statements: Statements, query: UsageQuery): UsageReport {
	const results = usageStatements(query).map((statement): [UsageStatement["kind"], Row[]] => {
		try {
			return [statement.kind, run(statements, statement, undefined)];
		} catch (error) {
			if (!(error instanceof Error && error.message === "integer overflow")) throw error;
			return [statement.kind, run(statements, statement, saturatingSum)];
		}
	});
	return readUsageReport(query, new Map(results), text);
}

/**
 * Returns the sum of a column, as an integer of 64 bits that ends at its limits. It costs more than `sum`, which fails
 * beyond them. The upper and the lower 32 bits are summed up apart, so that neither sum can overflow.
 */
export function saturatingSum(column: string): string {
	const lower = `sum(${column} & 4294967295)`;
	const upper = `(sum(${column} >> 32) + (${lower} >> 32))`;
	return `
		CASE WHEN ${upper} > 2147483647 THEN 9223372036854775807 WHEN ${upper} < -2147483648 THEN -9223372036854775808
			ELSE (${upper} << 32) | (${lower} & 4294967295) END
	`;
}

function run(statements: Statements, statement: UsageStatement, sum: UsageDialect["sum"] | undefined): Row[] {
	const { sql, values } = sqlOf(statement, sum);
	return statements.prepare(sql).all(...values);
}

/** Returns the starts of periods that have usage. */
export function listUsedPeriods(statements: Statements, query: UsedPeriodsQuery): bigint[] {
	const values: SQLInputValue[] = [];
	const value = (one: SQLInputValue) => {
		values.push(one);
		return "?";
	};
	const sql = usedPeriodsSql(query, { schema: "", value, encode: (name) => name });
	return statements
		.prepare(sql)
		.all(...values)
		.map(({ start }) => bigint(start));
}

/** Returns the SQL of a statement of a report, and the values of its placeholders. */
export function sqlOf(
	statement: UsageStatement,
	sum: UsageDialect["sum"] = (column) => `sum(${column})`,
): { readonly sql: string; readonly values: readonly SQLInputValue[] } {
	const values: SQLInputValue[] = [];
	const value = (one: SQLInputValue) => {
		values.push(one);
		return "?";
	};
	const sql = statement.build({
		schema: "",
		value,
		encode: (name) => name,
		segments: (placeholder) => `
			SELECT value ->> 0 AS period, value ->> 1 AS length, value ->> 2 AS first, value ->> 3 AS beyond
			FROM json_each(${placeholder})
		`,
		sum,
		conversationId: "iif(k.ledger = '', '', k.conversation_id)",
		isSame: "c.conversation_id = k.conversation_id",
		isParent: "p.conversation_id = up.id",
		matching(conditions) {
			const tests = conditionsOf(conditions).map(({ test }) => test);
			for (const parameter of parametersOf(tests)) value(parameter);
			return `SELECT c.conversation_id FROM conversations c WHERE ${tests.map((test) => test.text).join(" AND ")}`;
		},
		tagsOf: (alias) => `${alias}.conversation = c.id`,
		join: "CROSS JOIN",
		lookUp: (table, test) => `CROSS JOIN ${table} u ON ${test}`,
	});
	return { sql, values };
}

export function getUsageRange(statements: Statements, owner: string | undefined): UsagePeriod | undefined {
	const days = `FROM usage_sums WHERE length = 96 ${owner === undefined ? "" : "AND owner = :owner"}`;
	// SQLite reads one end of an index for a minimum or a maximum, but the whole index for both in one query.
	const row = statements
		.prepare(`SELECT (SELECT min(start) ${days}) AS first, (SELECT max(start) + 96 ${days}) AS beyond`)
		.get(owner === undefined ? {} : { owner: nameOf(owner) });
	const first = nullable(bigint, row?.first);
	return first === undefined ? undefined : { first, beyond: bigint(row?.beyond) };
}

export function listUsageTotals(statements: Statements, after: string): UsageTotal[] {
	return statements
		.prepare(usageTotalsSql("", "conversation_id", saturatingSum, "?"))
		.all(after)
		.map(usageTotalFrom);
}

export function listModelUsage(statements: Statements): ModelUsage[] {
	const rows = statements.prepare(modelUsageSql("", (column) => `total(${column})`)).all();
	return rows.map((row) => modelUsageFrom(row, text));
}
