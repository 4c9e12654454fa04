import { asciiLower, type Condition, hasCounts, hasTagCounts, type ListOrder } from "../condition.ts";
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

const COLUMNS = {
	executionStatus: "status",
	agentKind: "agent_kind",
	model: "model",
	parentConversationId: "parent_id",
	forkedFromConversationId: "source_id",
	sender: "sender",
	owner: "owner",
	createdAt: "created_at",
	updatedAt: "updated_at",
	activityAt: "activity_at",
} as const;

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
	const pieces = conditions.map((condition, index) => conditionSql(condition, `t${index}`, sql));
	const orderValue = order === "updated" ? undefined : ORDERS[order];
	const sequence = sql.value(bindable(before ?? 2n ** 63n));
	const tests = [
		orderValue === undefined || beforeValue === undefined
			? `c.sequence < ${sequence}`
			: `(${orderValue}, c.sequence) < (${sql.value(bindableNumber(beforeValue))}, ${sequence})`,
		...pieces.map(({ test }) => test),
	];
	const joins = pieces.map(({ join }) => join);
	const ordered = orderValue === undefined ? "c.sequence DESC" : `${orderValue} DESC, c.sequence DESC`;
	const [rows = []] = await session.query(
		sql.query(`
			SELECT c.order_value, c.conversation_id, c.sequence, c.status, c.posted_at, c.run_started_at, c.sender, c.owner,
				c.created_at, c.updated_at, u.summary, ${ACTIVITY_COLUMNS}, c.gap_count, c.gaps_since
				${withRecords ? `, ${RECORD_COLUMNS}` : ""}
			FROM (
				SELECT c.*, ${orderValue ?? "c.sequence"} AS order_value
				FROM conversation_updates.conversations c ${joins.join(" ")}
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
		const pieces = conditions.map((condition, index) => conditionSql(condition, `t${index}`, sql));
		const tests = pieces.map(({ test }) => test);
		const joins = pieces.map(({ join }) => join);
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

/** A condition in SQL: a test on conversation `c`, and the join that the test needs. */
export interface ConditionSql {
	readonly join: string;
	readonly test: string;
}

/** @param alias name of the table that the condition joins */
export function conditionSql(condition: Condition, alias: string, sql: Sql): ConditionSql {
	switch (condition.kind) {
		case "equal": {
			const { field, value } = condition;
			const stored = sql.value(typeof value === "string" ? encodeKey(value) : value);
			return { join: "", test: `c.${COLUMNS[field]} = ${stored}` };
		}
		case "tag": {
			const { key, value } = condition;
			// Joined by the sequence, so that the index of tags has the order of lists. A further join condition would mislead the
			// planner.
			const join = `JOIN conversation_updates.tags ${alias} ON ${alias}.sequence = c.sequence`;
			const ofKey = `${alias}.key = ${sql.value(encodeKey(key))}`;
			const test = value === undefined ? ofKey : `${ofKey} AND ${alias}.value = ${sql.value(encodeKey(value))}`;
			return { join, test };
		}
		case "time": {
			const column = `c.${COLUMNS[condition.field]}`;
			const from = sql.value(bindable(condition.from ?? -(2n ** 63n)));
			const to = sql.value(bindable(condition.to ?? 2n ** 63n));
			return { join: "", test: `${column} >= ${from} AND ${column} < ${to}` };
		}
		case "one_of":
			return { join: "", test: `c.${COLUMNS[condition.field]} = ANY (${sql.value(condition.values)}::bigint[])` };
		case "ids": {
			const ids = condition.ids.filter(isConversationId);
			return { join: "", test: `c.conversation_id = ANY (${sql.value(ids)}::uuid[])` };
		}
		case "cost": {
			const { from, to } = condition;
			const bounds = [
				...(from === undefined ? [] : [`c.cost >= ${sql.value(from)}`]),
				...(to === undefined ? [] : [`c.cost < ${sql.value(to)}`]),
			];
			return { join: "", test: bounds.length === 0 ? "true" : bounds.join(" AND ") };
		}
		case "error":
			return { join: "", test: condition.value ? "c.has_error" : "NOT c.has_error" };
		case "gaps":
			if (!condition.value) return { join: "", test: "c.gap_count = 0" };
			return {
				join: "",
				test:
					condition.before === undefined
						? "c.gap_count > 0"
						: `c.gap_count > 0 AND c.gaps_since < ${sql.value(bindable(condition.before))}`,
			};
		case "title": {
			const join = `JOIN conversation_updates.titles ${alias} ON ${alias}.conversation_id = c.conversation_id`;
			const contained = encodeText(asciiLower(condition.contains)).replaceAll(/[\\%_]/g, "\\$&");
			return { join, test: `${alias}.title LIKE ${sql.value(`%${contained}%`)}` };
		}
	}
}
