import { asciiLower } from "../condition.ts";
import { SCHEMA as SCHEMAS } from "../schema.ts";
import type { LogTable } from "../sequence-log.ts";
import type { Dialect, LogDialect, Terms } from "../session.ts";
import { decoded, encodeKey, encodeText } from "./rows.ts";

const SCHEMA = SCHEMAS.postgres;
const UUID = "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$";

/** Columns of `positions`. */
const NEWEST = { updates: "newest_update", events: "newest_event" } as const;

function entriesOf(log: LogTable): LogDialect {
	const from = `${SCHEMA}${log} e`;
	return {
		from,
		ofOne: from,
		ofOwner: { from, owner: "e.owner", sequence: "e.sequence" },
		conversationId: "e.conversation_id",
		owner: "e.owner",
		isOf: "conversation_id = ?",
		size: "e.size",
		used: `(SELECT ${NEWEST[log]} FROM ${SCHEMA}positions)`,
		skip: `UPDATE ${SCHEMA}positions SET ${NEWEST[log]} = ?`,
	};
}

const DIALECT: Dialect = {
	engine: "postgres",
	schema: SCHEMA,
	headKey: "conversation_id",
	headReference: "conversation_id",
	entries: { updates: entriesOf("updates"), events: entriesOf("events") },
	eventsById: {
		from: `${SCHEMA}events e`,
		// No index has all ids in one order: it would slow appends.
		test: `e.conversation_id = ANY (ARRAY(SELECT conversation_id FROM ${SCHEMA}activities))`,
	},
	eventsByResponse: `(
			SELECT (value ->> 0)::uuid AS conversation_id, value ->> 1 AS response_id FROM json_array_elements(?::json)
		) p JOIN ${SCHEMA}events e ON e.conversation_id = p.conversation_id AND e.llm_response_id = p.response_id`,
	newest: { updates: entriesOf("updates").used, events: entriesOf("events").used },
	isCurrent: (head) => `u.conversation_id = ${head}.conversation_id AND u.sequence = ${head}.sequence`,
	isBase: (update) => `EXISTS (
		SELECT 1 FROM ${SCHEMA}updates d
		WHERE d.conversation_id = ${update}.conversation_id AND d.base_sequence = ${update}.sequence
	)`,
	isEvent: (row) => `e.conversation_id = ${row}.conversation_id AND e.sequence = ${row}.sequence`,
	keyWithoutHead: "a.conversation_id",
	isOfActivity: "e.conversation_id = a.conversation_id",
	removals: "removals",
	clock: "retention",
	title: `(SELECT t.title FROM ${SCHEMA}titles t WHERE t.conversation_id = c.conversation_id)`,
	usageId: "id",
	usageReferences: ["usage_ledger", "usage_days"],
	sum: saturatingSum,
	quickSum: saturatingSum,
	realSum: (column) => `sum(${column})::double precision`,
	least: "least",
	greatest: "greatest",
	jsonRows: (values) => `coalesce(json_agg(json_build_array(${values})), '[]')::text`,
	forUpdate: "FOR UPDATE",
	join: "JOIN",
	// The planner does not know how few rows a segment selects, and would read the whole table. OFFSET keeps it from that.
	lookUp: (table, test) => `CROSS JOIN LATERAL (SELECT * FROM ${table} u WHERE ${test} OFFSET 0) u`,
	segments: `
		SELECT (value ->> 0)::bigint AS period, (value ->> 1)::bigint AS length, (value ->> 2)::bigint AS first,
			(value ->> 3)::bigint AS beyond
		FROM json_array_elements(?::json)
	`,
	isParent: `p.conversation_id = CASE WHEN up.id ~ '${UUID}' THEN up.id::uuid END`,
	recordsAtOnce: 50,
	tagCondition({ key, value }, alias) {
		const join = `JOIN ${SCHEMA}tags ${alias} ON ${alias}.conversation_id = c.conversation_id`;
		const test =
			value === undefined
				? { text: `${alias}.key = ?`, parameters: [encodeKey(key)] }
				: { text: `${alias}.key = ? AND ${alias}.value = ?`, parameters: [encodeKey(key), encodeKey(value)] };
		return { join, test };
	},
	titleCondition({ contains }, alias) {
		const join = `JOIN ${SCHEMA}titles ${alias} ON ${alias}.conversation_id = c.conversation_id`;
		const contained = encodeText(asciiLower(contains)).replaceAll(/[\\%_]/g, "\\$&");
		return { join, test: { text: `${alias}.title LIKE ?`, parameters: [`%${contained}%`] } };
	},
};

/** Returns the sum of a column, as an integer of 64 bits that ends at its limits; 0 without rows. */
function saturatingSum(column: string): string {
	return `least(greatest(coalesce(sum(${column}), 0), -9223372036854775808), 9223372036854775807)::bigint`;
}

/** SQL that tests whether a value is in a list, which is one parameter. */
export const ANY_OF = "= ANY (?::uuid[])";

/** What statements for PostgreSQL consist of. */
export const POSTGRES: Terms = {
	dialect: DIALECT,
	isIn: (column) => `${column} ${ANY_OF}`,
	isAmong: (column) => `${column} = ANY (?::bigint[])`,
	readText: decoded,
	storeText: encodeText,
	storeKey: encodeKey,
};
