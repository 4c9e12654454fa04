import { asciiLower, type Condition } from "../condition.ts";
import { conversationFrom } from "../rows.ts";
import type { ConversationQuery, StoredConversation } from "../store.ts";
import { bindable } from "../values.ts";
import { BASE_JOIN, RECORD_COLUMNS, RecordReader } from "./records.ts";
import { ACTIVITY_COLUMNS, activityOf, decoded } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Session } from "./transaction.ts";

const COLUMNS = {
	executionStatus: "status",
	agentKind: "agent_kind",
	model: "model",
	parentConversationId: "parent_id",
	sender: "sender",
	owner: "owner",
	createdAt: "created_at",
	updatedAt: "updated_at",
} as const;

/**
 * Lists conversations, newest current update first. The planner chooses the index. An index for equality has its
 * conversations in this order; the indexes of times and titles select few conversations.
 */
export async function listConversations(session: Session, query: ConversationQuery): Promise<StoredConversation[]> {
	const { conditions, before, limit, withRecords } = query;
	const sql = new Sql();
	const pieces = conditions.map((condition, index) => conditionSql(condition, `t${index}`, sql));
	const tests = [`c.sequence < ${sql.value(bindable(before ?? 2n ** 63n))}`, ...pieces.map(({ test }) => test)];
	const [rows = []] = await session.query(
		sql.query(`
			SELECT c.conversation_id, c.sequence, c.status, c.posted_at, c.sender, c.owner, u.summary, ${ACTIVITY_COLUMNS}
				${withRecords ? `, ${RECORD_COLUMNS}` : ""}
			FROM (
				SELECT c.* FROM conversation_updates.conversations c ${pieces.map(({ join }) => join).join(" ")}
				WHERE ${tests.join(" AND ")} ORDER BY c.sequence DESC LIMIT ${sql.value(limit)}
			) c
			JOIN conversation_updates.updates u ON u.sequence = c.sequence
			LEFT JOIN conversation_updates.activities a ON a.conversation_id = c.conversation_id
			${withRecords ? BASE_JOIN : ""}
			ORDER BY c.sequence DESC
		`),
	);
	const records = new RecordReader();
	return rows.map((row) =>
		conversationFrom(row, decoded, activityOf(row), withRecords ? records.read(row) : undefined),
	);
}

/** A condition in SQL: a test on conversation `c`, and the join that the test needs. */
interface ConditionSql {
	readonly join: string;
	readonly test: string;
}

/** @param alias name of the table that the condition joins */
function conditionSql(condition: Condition, alias: string, sql: Sql): ConditionSql {
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
		case "title": {
			const join = `JOIN conversation_updates.titles ${alias} ON ${alias}.conversation_id = c.conversation_id`;
			const contained = encodeText(asciiLower(condition.contains)).replaceAll(/[\\%_]/g, "\\$&");
			return { join, test: `${alias}.title LIKE ${sql.value(`%${contained}%`)}` };
		}
	}
}
