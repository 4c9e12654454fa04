import { hasCounts, hasTagCounts, type ListOrder } from "./condition.ts";
import { allOf, conditionSql } from "./condition-sql.ts";
import type {
	ConversationQuery,
	CountQuery,
	StoredConversation,
	StoredCount,
	StoredCounts,
} from "./conversation-lists.ts";
import { ACTIVITY_COLUMNS, conversationFrom, joinedActivityFrom } from "./rows.ts";
import type { Session, Sql } from "./session.ts";
import { bindable, bindableNumber, integer } from "./values.ts";

/** The values by which lists are ordered, before the sequence of the current update. */
const ORDERS: Readonly<Record<ListOrder, string>> = {
	updated: "c.sequence",
	activity: "c.activity_at",
	created: "c.created_at",
	cost: "c.cost",
	tokens: "c.tokens",
};

/** Lists conversations. An index for equality has its conversations in the order `updated`; the other orders have their own. */
export async function listConversations(session: Session, query: ConversationQuery): Promise<StoredConversation[]> {
	const { order = "updated", before = 2n ** 63n, beforeValue, limit, withRecords } = query;
	const { schema, isCurrent } = session.dialect;
	const { from, tests, sequence } = await session.find(conditionSql(query.conditions, session), order);
	const isUpdated = order === "updated";
	const key = isUpdated ? [sequence] : [ORDERS[order], sequence];
	const page = [...(isUpdated || beforeValue === undefined ? [] : [bindableNumber(beforeValue)]), bindable(before)];
	const isBefore = { text: `(${key.join()}) < (${page.map(() => "?").join()})`, parameters: page };
	const where = allOf([...tests, ...(isUpdated || beforeValue !== undefined ? [isBefore] : [])]);
	using records = session.records();
	const rows = await session.all(
		`SELECT c.order_value, c.conversation_id, c.sequence, c.status, c.posted_at, c.run_started_at, c.sender, c.owner,
			c.created_at, c.updated_at, c.gap_count, c.gaps_since, u.summary, ${ACTIVITY_COLUMNS}
			${withRecords ? records.columns : ""}
		FROM (
			SELECT c.*, ${ORDERS[order]} AS order_value FROM ${from} WHERE ${where.text}
			ORDER BY ${key.map((part) => `${part} DESC`).join()} LIMIT ?
		) c
		LEFT JOIN ${schema}updates u ON ${isCurrent("c")}
		LEFT JOIN ${schema}activities a ON a.conversation_id = c.conversation_id
		${withRecords ? records.join : ""}
		ORDER BY c.order_value DESC ${isUpdated ? "" : ", c.sequence DESC"}`,
		...where.parameters,
		limit,
	);
	return rows.map((row) => {
		const record = withRecords && row.summary !== null ? records.read(row) : undefined;
		return conversationFrom(row, session.readText, joinedActivityFrom(row, session.readText), record, order);
	});
}

/** The columns of the values that conversations are counted by. */
const GROUPS = {
	executionStatus: "status",
	agentKind: "agent_kind",
	model: "model",
	sender: "sender",
	owner: "owner",
} as const;

/** Counts conversations: sums up the kept counts, or if they do not tell, reads the conversations. */
export async function countConversations(
	session: Session,
	{ conditions, group, limit }: CountQuery,
): Promise<StoredCounts> {
	const { schema, headKey, headReference, join } = session.dialect;
	const translated = conditionSql(conditions, session);
	const count = async (column: string, number: string, from: string, tests: readonly Sql[]): Promise<StoredCount[]> => {
		const where = allOf(tests);
		const rows = await session.all(
			`SELECT ${column} AS value, ${number} AS count FROM ${from} WHERE ${where.text}
			GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?`,
			...where.parameters,
			limit,
		);
		return rows.map((row) => ({
			value: typeof row.value === "bigint" ? Number(row.value) : session.readText(row.value),
			count: integer(row.count),
		}));
	};
	const kept = (column: string, table: string, own: readonly Sql[] = []) => {
		const tests = [...translated.map(({ test }) => test), ...own];
		return count(column, "CAST(sum(c.number) AS bigint)", `${schema}${table} c`, tests);
	};
	const scanned = async (column: string, joined = "", own: readonly Sql[] = []) => {
		const { from, tests } = await session.find(translated, undefined);
		return count(column, "count(*)", `${from} ${joined}`, [...tests, ...own]);
	};
	const ofAll = hasCounts(conditions);
	const none = "CAST('' AS text)";
	const total = async () => (await (ofAll ? kept(none, "conversation_counts") : scanned(none)))[0]?.count ?? 0;
	if (group === undefined) return { counts: [], total: await total() };
	if (group.by === "tagKey" || group.by === "tag") {
		const column = group.by === "tag" ? "value" : "key";
		const ofKey = (alias: string): Sql[] =>
			group.by === "tag" ? [{ text: `${alias}.key = ?`, parameters: [session.storeKey(group.key)] }] : [];
		const counts = hasTagCounts(conditions)
			? await kept(`c.${column}`, `tag_${column}_counts`, ofKey("c"))
			: await scanned(`g.${column}`, `${join} ${schema}tags g ON g.${headReference} = c.${headKey}`, ofKey("g"));
		return { counts, total: await total() };
	}
	const column = `c.${GROUPS[group.by]}`;
	const value = group.by === "executionStatus" ? column : `coalesce(${column}, '')`;
	const counts = await (ofAll ? kept(value, "conversation_counts") : scanned(value));
	return { counts, total: counts.length < limit ? counts.reduce((sum, one) => sum + one.count, 0) : await total() };
}
