import { SCHEMA as SCHEMAS } from "../schema.ts";
import type { Dialect, Terms } from "../session.ts";

const SCHEMA = SCHEMAS.postgres;
const UUID = "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$";
const CASTS = { id: "::uuid", integer: "::bigint", text: "" } as const;

const DIALECT: Dialect = {
	engine: "postgres",
	schema: SCHEMA,
	newest: {
		updates: `(SELECT newest_update FROM ${SCHEMA}state)`,
		events: `(SELECT newest_event FROM ${SCHEMA}state)`,
	},
	sum: (column) => `least(greatest(coalesce(sum(${column}), 0), -9223372036854775808), 9223372036854775807)::bigint`,
	least: "least",
	greatest: "greatest",
	forUpdate: "FOR UPDATE",
	join: "JOIN",
	// The planner does not know how few rows a segment selects, and would read the whole table. OFFSET keeps it from that.
	lookUp: (table, test) => `CROSS JOIN LATERAL (SELECT * FROM ${table} u WHERE ${test} OFFSET 0) u`,
	rowsOf: (columns) =>
		`SELECT ${Object.entries(columns)
			.map(([name, type], n) => `(value ->> ${n})${CASTS[type]} AS ${name}`)
			.join()} FROM json_array_elements(?::json)`,
	idOf: (text) => `CASE WHEN ${text} ~ '${UUID}' THEN ${text}::uuid END`,
	isOneOf: (column, query) => `${column} = ANY (ARRAY(${query}))`,
	titleContains: (contained) => ({
		text: "t.title LIKE ?",
		parameters: [`%${contained.replaceAll(/[\\%_]/g, "\\$&")}%`],
	}),
	titleIndex: () => undefined,
};

/** What tests whether a value is in a list of ids, which is one parameter. */
export const IN_LIST = "= ANY (?::uuid[])";

/** What statements for PostgreSQL consist of. */
export const POSTGRES: Terms = {
	dialect: DIALECT,
	isIn: (column) => `${column} ${IN_LIST}`,
	isAmong: (column) => `${column} = ANY (?::bigint[])`,
};
