import { asciiLower, type Condition, hasCounts, hasTagCounts, type ListOrder } from "../condition.ts";
import { conditionSql, type OwnConditions } from "../condition-sql.ts";
import type {
	ConversationQuery,
	CountGroup,
	CountQuery,
	StoredConversation,
	StoredCount,
	StoredCounts,
} from "../conversation-lists.ts";
import { conversationFrom } from "../rows.ts";
import { bindable, bindableNumber, integer } from "../values.ts";
import { BASE_JOIN, RECORD_COLUMNS, RecordReader } from "./records.ts";
import { ACTIVITY_COLUMNS, activityOf, decoded, isConversationId } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Session } from "./transaction.ts";

/** The values by which lists are ordered, before the sequence of the current update. */
const ORDERS: Readonly<Record<Exclude<ListOrder, "updated">, string>> = {
	activity: "c.activity_at",
	created: "c.created_at",
	cost: "c.cost",
	tokens: "c.tokens",
};

/**
 * Lists conversations. The planner chooses the index. An index for equality has its conversations in the order `updated`;
 * the indexes of times and titles select few conversations, and the other orders have indexes of their own.
 */
export async function listConversations(session: Session, query: ConversationQuery): Promise<StoredConversation[]> {
	const { conditions, order = "updated", before, beforeValue, limit, withRecords } = query;
	const sql = new Sql();
	const found = conditionsIn(sql, conditions);
	const orderValue = order === "updated" ? undefined : ORDERS[order];
	const sequence = sql.value(bindable(before ?? 2n ** 63n));
	const tests = [
		orderValue === undefined || beforeValue === undefined
			? `c.sequence < ${sequence}`
			: `(${orderValue}, c.sequence) < (${sql.value(bindableNumber(beforeValue))}, ${sequence})`,
		...found.tests,
	];
	const ordered = orderValue === undefined ? "c.sequence DESC" : `${orderValue} DESC, c.sequence DESC`;
	const [rows = []] = await session.query(
		sql.query(`
			SELECT c.order_value, c.conversation_id, c.sequence, c.status, c.posted_at, c.run_started_at, c.sender, c.owner,
				c.created_at, c.updated_at, u.summary, ${ACTIVITY_COLUMNS}, c.gap_count, c.gaps_since
				${withRecords ? `, ${RECORD_COLUMNS}` : ""}
			FROM (
				SELECT c.*, ${orderValue ?? "c.sequence"} AS order_value
				FROM conversation_updates.conversations c ${found.joins.join(" ")}
				WHERE ${tests.join(" AND ")} ORDER BY ${ordered} LIMIT ${sql.value(limit)}
			) c
			LEFT JOIN conversation_updates.updates u
				ON u.conversation_id = c.conversation_id AND u.sequence = c.sequence
			LEFT JOIN conversation_updates.activities a ON a.conversation_id = c.conversation_id
			${withRecords ? BASE_JOIN : ""}
			ORDER BY c.order_value DESC, c.sequence DESC
		`),
	);
	const records = new RecordReader();
	return rows.map((row) =>
		conversationFrom(
			row,
			decoded,
			activityOf(row),
			withRecords && row.summary !== null ? records.read(row) : undefined,
			order,
		),
	);
}

const GROUPS = {
	executionStatus: "status",
	agentKind: "agent_kind",
	model: "model",
	sender: "sender",
	owner: "owner",
} as const;

/** Counts conversations: sums up the kept counts, or if they do not tell, reads the conversations. */
export async function countConversations(session: Session, query: CountQuery): Promise<StoredCounts> {
	const { conditions, group, limit } = query;
	/** @param table of kept counts; undefined to read the conversations */
	const count = async (column: string, table: string | undefined, of: CountGroup | undefined) => {
		const sql = new Sql();
		const found = conditionsIn(sql, conditions);
		const [tests, joins] = [[...found.tests], [...found.joins]];
		if (table === undefined && (of?.by === "tag" || of?.by === "tagKey"))
			joins.push("JOIN conversation_updates.tags g ON g.conversation_id = c.conversation_id");
		if (of?.by === "tag") tests.push(`${table === undefined ? "g" : "c"}.key = ${sql.value(encodeKey(of.key))}`);
		const [rows = []] = await session.query(
			sql.query(`
				SELECT ${column} AS value, ${table === undefined ? "count(*)" : "sum(c.number)::bigint"} AS count
				FROM conversation_updates.${table ?? "conversations"} c ${joins.join(" ")}
				${tests.length === 0 ? "" : `WHERE ${tests.join(" AND ")}`}
				GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ${sql.value(limit)}
			`),
		);
		return rows.map(
			({ value, count: number }): StoredCount => ({
				value: typeof value === "bigint" ? Number(value) : decoded(value),
				count: integer(number),
			}),
		);
	};
	const counts = hasCounts(conditions) ? "conversation_counts" : undefined;
	const total = async () => (await count("''::text", counts, undefined))[0]?.count ?? 0;
	if (group === undefined) return { counts: [], total: await total() };
	if (group.by === "tag" || group.by === "tagKey") {
		const column = group.by === "tag" ? "value" : "key";
		const found = hasTagCounts(conditions)
			? await count(`c.${column}`, `tag_${column}_counts`, group)
			: await count(`g.${column}`, undefined, group);
		return { counts: found, total: await total() };
	}
	const column = `c.${GROUPS[group.by]}`;
	const found = await count(group.by === "executionStatus" ? column : `coalesce(${column}, '')`, counts, group);
	return {
		counts: found,
		total: found.length < limit ? found.reduce((sum, one) => sum + one.count, 0) : await total(),
	};
}

const OWN: OwnConditions = {
	key: encodeKey,
	ids: (ids) => ids.filter(isConversationId),
	isIn: (column) => `${column} = ANY (?::uuid[])`,
	tag({ key, value }, alias) {
		// Joined by the sequence, so that the index of tags has the order of lists. A further join condition would mislead the
		// planner.
		const join = `JOIN conversation_updates.tags ${alias} ON ${alias}.sequence = c.sequence`;
		const test =
			value === undefined
				? { text: `${alias}.key = ?`, parameters: [encodeKey(key)] }
				: { text: `${alias}.key = ? AND ${alias}.value = ?`, parameters: [encodeKey(key), encodeKey(value)] };
		return { join, test };
	},
	title({ contains }, alias) {
		const join = `JOIN conversation_updates.titles ${alias} ON ${alias}.conversation_id = c.conversation_id`;
		const contained = encodeText(asciiLower(contains)).replaceAll(/[\\%_]/g, "\\$&");
		return { join, test: { text: `${alias}.title LIKE ?`, parameters: [`%${contained}%`] } };
	},
};

/** Returns the joins and the tests of conversations `c` by conditions, whose values become parameters of a statement. */
export function conditionsIn(
	sql: Sql,
	conditions: readonly Condition[],
): { readonly joins: readonly string[]; readonly tests: readonly string[] } {
	const all = conditionSql(conditions, OWN);
	return { joins: all.flatMap(({ join }) => join ?? []), tests: all.map(({ test }) => sql.fragment(test)) };
}
