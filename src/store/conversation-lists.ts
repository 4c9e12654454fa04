import { encodeActivity, shownError } from "./activity.ts";
import { asciiLower, type Condition, EVER, type ListOrder, NOT_REPORTED } from "./condition.ts";
import {
	ACTIVITY_COLUMNS,
	currentRecordFrom,
	isOfRow,
	joinedActivityFrom,
	ownershipFrom,
	RECORD_COLUMNS,
	readRecords,
	summaryFrom,
	withErrorSequence,
} from "./rows.ts";
import { allOf, type Found, given, type Session, type Sql, type SqlCondition, sql, type Terms } from "./session.ts";
import type { TableName } from "./tables.ts";
import {
	bigint,
	bindable,
	integer,
	keyOf,
	max,
	min,
	nullable,
	type Row,
	type StoredRecord,
	text,
	type Unreadable,
} from "./values.ts";

/** Lists of conversations, and their numbers: the queries, and their translation into SQL for both engines. */

export interface ConversationQuery {
	/** Conditions that must all hold. */
	readonly conditions: readonly Condition[];
	/** Default: `updated`. */
	readonly order?: ListOrder | undefined;
	/** Name of the score by which the order `score` orders. */
	readonly orderScore?: string | undefined;
	/** Only conversations whose current update has a sequence below this one: where the next page begins. */
	readonly before?: bigint | undefined;
	/** Of another order than `updated`: the value at which the next page begins. Set if `before` is. */
	readonly beforeValue?: bigint | number | undefined;
	/** Maximum number of conversations to return, from 1 to 1000. */
	readonly limit: number;
	readonly withRecords: boolean;
}

/** Returns the query that finds the conversation if it meets conditions. */
export function meetingQuery(conversationId: string, conditions: readonly Condition[]): ConversationQuery {
	return { conditions: [...conditions, { kind: "ids", ids: [conversationId] }], limit: 1, withRecords: false };
}

/** A conversation with its current record, as lists return it. */
export interface StoredConversation {
	/** The value by which the list is ordered; undefined in the order `updated`. `cost` and `score` have fractions. */
	readonly orderValue?: bigint | number | undefined;
	readonly conversationId: string;
	/** Sequence of the current update. Of a conversation without a record: see `isSequence`. */
	readonly sequence: bigint;
	/** Encoded `ConversationSummary` of the record, or of what events tell, with the present activity of the conversation. */
	readonly summary: Uint8Array;
	/** Undefined when the query did not ask for records, or there is none. */
	readonly record: StoredRecord | Unreadable | undefined;
}

/** What conversations are counted by: a value of each, or the keys or the values of tags. Undefined: all together. */
export type CountGroup =
	| { readonly by: "executionStatus" | "agentKind" | "model" | "sender" | "owner" | "tagKey" }
	| { readonly by: "tag"; readonly key: string };

export interface CountQuery {
	/** Conditions that must all hold. */
	readonly conditions: readonly Condition[];
	readonly group: CountGroup | undefined;
	/** Maximum number of counts to return. */
	readonly limit: number;
}

/** Number of conversations with a value: a text, or the number of a status. */
interface StoredCount {
	/** Empty where a conversation has no value. A long one may be cut, with a digest in place of the rest. */
	readonly value: string | number;
	readonly count: number;
}

export interface StoredCounts {
	/** The largest first. Empty without a group. */
	readonly counts: readonly StoredCount[];
	/** Number of conversations that meet the conditions. */
	readonly total: number;
}

/** The values by which lists are ordered, before the sequence of the current update. */
const ORDERS: Readonly<Record<ListOrder, string>> = {
	updated: "c.sequence",
	activity: "c.activity_at",
	created: "c.created_at",
	cost: "c.cost",
	tokens: "c.tokens",
	score: "o.value",
};

/** The value of conversations without a score to order by: less than all others, so that they come last. */
const WITHOUT_SCORE = Number.NEGATIVE_INFINITY;

export async function listConversations(session: Session, query: ConversationQuery): Promise<StoredConversation[]> {
	const { order, orderScore: name = "", before, beforeValue, conditions, limit } = query;
	if (order !== "score") return await listInOrder(session, query);
	const areScored = beforeValue !== WITHOUT_SCORE;
	const scored = areScored ? await listInOrder(session, query) : [];
	if (scored.length === limit) return scored;
	const others = await listInOrder(session, {
		...query,
		order: "updated",
		conditions: [...conditions, { kind: "score", name, is: "none", isOrdered: true }],
		before: areScored ? undefined : before,
		limit: limit - scored.length,
	});
	return [...scored, ...others.map((one) => ({ ...one, orderValue: WITHOUT_SCORE }))];
}

async function listInOrder(session: Session, query: ConversationQuery): Promise<StoredConversation[]> {
	const { order = "updated", before = 2n ** 63n, beforeValue, limit, withRecords } = query;
	const { schema } = session.dialect;
	const conditions = conditionSql(query.conditions, session);
	const isByScore = order === "score";
	const { from, tests } = isByScore ? byScore(session, query, conditions) : await session.find(conditions, order);
	const isUpdated = order === "updated";
	const key = isUpdated ? ["c.sequence"] : [ORDERS[order], "c.sequence"];
	const value = typeof beforeValue === "bigint" ? bindable(beforeValue) : beforeValue;
	const start = [...(isUpdated || value === undefined ? [] : [value]), bindable(before)];
	const isBefore = sql(`(${key.join()}) < (${start.map(() => "?").join()})`, ...start);
	const where = allOf([...tests, ...(isUpdated || beforeValue !== undefined ? [isBefore] : [])]);
	const ordered = key.map((part) => `${part} DESC`).join();
	const found = sql(`FROM ${from} WHERE ${where.text}`, ...where.parameters);
	const page = sql(`${found.text} ORDER BY ${ordered} LIMIT ?`, ...found.parameters, limit);
	const of = (await session.isSpread()) ? await pageByIds(session, page, found) : page;
	const rows = await session.all(
		`SELECT c.order_value, c.conversation_id, c.sequence, c.status, c.posted_at, c.run_started_at, c.sender, c.owner,
			c.created_at, c.updated_at, c.gap_count, c.gaps_since, u.summary, ${ACTIVITY_COLUMNS}
			${withRecords ? RECORD_COLUMNS : ""}
		FROM (
			SELECT c.*, ${ORDERS[order]} AS order_value ${of.text}
		) c
		LEFT JOIN ${schema}updates u ON ${isOfRow("u", "c")}
		LEFT JOIN ${schema}activities a ON a.conversation_id = c.conversation_id
		ORDER BY c.order_value DESC ${isUpdated ? "" : ", c.sequence DESC"}`,
		...of.parameters,
	);
	const hasRecord = ({ summary }: Row) => withRecords && summary !== null;
	const recordOf = await readRecords(session, rows.filter(hasRecord));
	return rows.map((row) => conversationFrom(row, hasRecord(row) ? recordOf(row) : undefined, order));
}

/** Returns how conversations with a score are found, in the order of its index. */
function byScore(
	{ dialect: { schema, join } }: Session,
	{ orderScore = "", beforeValue }: ConversationQuery,
	conditions: readonly SqlCondition[],
): Found {
	const isScored = sql("o.name = ? AND o.value IS NOT NULL", orderScore);
	// Later pages begin in the index where the one before ended.
	const isBefore = given([["o.value <= ?", beforeValue]]);
	return {
		from: `${schema}score_values o ${join} ${schema}conversations c ON c.conversation_id = o.conversation_id`,
		tests: [isScored, isBefore, ...conditions.map(({ test }) => test)],
	};
}

/**
 * Reads the ids of a page. Returns a source with the same conversations that has no limit: when rows are spread over servers,
 * the whole of each table would be copied that is joined to rows with a limit.
 */
async function pageByIds({ all, isIn }: Session, { text: page, parameters }: Sql, found: Sql): Promise<Sql> {
	const rows = await all(`SELECT c.conversation_id ${page}`, ...parameters);
	const ids = rows.map(({ conversation_id }) => text(conversation_id));
	return sql(`${found.text} AND ${isIn("c.conversation_id")}`, ...found.parameters, ids);
}

export async function countConversations(
	session: Session,
	{ conditions, group, limit }: CountQuery,
): Promise<StoredCounts> {
	const { schema, join } = session.dialect;
	const { from, tests } = await session.find(conditionSql(conditions, session), undefined);
	const count = async (column: string, joined = "", own: readonly Sql[] = []): Promise<StoredCount[]> => {
		const where = allOf([...tests, ...own]);
		const rows = await session.all(
			`SELECT ${column} AS value, count(*) AS count FROM ${from} ${joined} WHERE ${where.text}
			GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?`,
			...where.parameters,
			limit,
		);
		return rows.map((row) => ({
			value: typeof row.value === "bigint" ? Number(row.value) : text(row.value),
			count: integer(row.count),
		}));
	};
	const total = async () => {
		const where = allOf(tests);
		const [row] = await session.all(`SELECT count(*) AS count FROM ${from} WHERE ${where.text}`, ...where.parameters);
		return integer(row?.count);
	};
	if (group === undefined) return { counts: [], total: await total() };
	if (group.by === "tagKey" || group.by === "tag") {
		const [column, own]: [string, Sql[]] =
			group.by === "tag" ? ["g.value", [sql("g.key = ?", keyOf(group.key))]] : ["g.key", []];
		const counts = await count(column, `${join} ${schema}tags g ON g.conversation_id = c.conversation_id`, own);
		return { counts, total: await total() };
	}
	const column = `c.${COLUMNS[group.by].column}`;
	const counts = await count(group.by === "executionStatus" ? column : `coalesce(${column}, '')`);
	return { counts, total: counts.length < limit ? counts.reduce((sum, one) => sum + one.count, 0) : await total() };
}

const COLUMNS = {
	executionStatus: { column: "status", index: "conversations_by_status" },
	agentKind: { column: "agent_kind", index: "conversations_by_agent_kind" },
	model: { column: "model", index: "conversations_by_model" },
	parentConversationId: { column: "parent_id", index: "conversations_by_parent" },
	forkedFromConversationId: { column: "source_id", index: "conversations_by_source" },
	sender: { column: "sender", index: "conversations_by_sender" },
	owner: { column: "owner", index: "conversations_by_owner" },
	createdAt: { column: "created_at", index: "conversations_by_created" },
	updatedAt: { column: "updated_at", index: "conversations_by_updated" },
	activityAt: { column: "activity_at", index: "conversations_by_activity" },
} as const;

type TimeCondition = Extract<Condition, { kind: "time" }>;

/** Translates conditions into SQL. Merges all conditions on the same time into one range. */
export function conditionSql(conditions: readonly Condition[], terms: Terms): SqlCondition[] {
	const ranges = new Map<TimeCondition["field"], TimeCondition>();
	const others = conditions.filter((condition) => {
		if (condition.kind !== "time") return true;
		ranges.set(condition.field, intersection(condition, ranges.get(condition.field)));
		return false;
	});
	return [...others, ...ranges.values()].map((condition) => oneConditionSql(condition, terms));
}

function intersection(a: TimeCondition, b: TimeCondition = a): TimeCondition {
	const [from, to] = [max(a.from ?? EVER.from, b.from ?? EVER.from), min(a.to ?? EVER.to, b.to ?? EVER.to)];
	return { kind: "time", field: a.field, from, to };
}

function oneConditionSql(condition: Condition, terms: Terms): SqlCondition {
	switch (condition.kind) {
		case "equal": {
			const { column, index } = COLUMNS[condition.field];
			const value = typeof condition.value === "string" ? keyOf(condition.value) : condition.value;
			return { ...byIndex(sql(`c.${column} = ?`, value), index), isOwner: condition.field === "owner" };
		}
		case "tag": {
			const { key, value } = condition;
			const where = given([
				["t.key = ?", keyOf(key)],
				["t.value = ?", value && keyOf(value)],
			]);
			return inOther(terms, "tags", "tags_by_value", where);
		}
		case "title":
			return { test: sql(`${terms.dialect.placeOf}(lower(c.title), ?) > 0`, asciiLower(condition.contains)) };
		case "time": {
			const { column, index } = COLUMNS[condition.field];
			const range = [bindable(condition.from ?? EVER.from), bindable(condition.to ?? EVER.to)];
			return byIndex(sql(`c.${column} >= ? AND c.${column} < ?`, ...range), index);
		}
		case "one_of": {
			const { column, index } = COLUMNS[condition.field];
			const { values } = condition;
			return byIndex(sql(`c.${column} IN (${values.map(() => "?").join()})`, ...values), index);
		}
		case "ids":
			return byIndex({ text: terms.isIn("c.conversation_id"), parameters: [condition.ids] }, undefined);
		case "cost": {
			const { from = 0, to = Number.POSITIVE_INFINITY } = condition;
			// Costs are 0 or more; a negative bound would include NOT_REPORTED.
			return byIndex(sql("c.cost >= ? AND c.cost < ?", Math.max(from, 0), to), "conversations_by_cost");
		}
		case "not_reported":
			return byIndex(sql(`c.${condition.of} = ${NOT_REPORTED}`), `conversations_by_${condition.of}`);
		case "score": {
			const { name } = condition;
			const isNamed = sql("t.name = ?", name);
			if (condition.is === "none") {
				const where = condition.isOrdered ? allOf([isNamed, sql("t.value IS NOT NULL")]) : isNamed;
				const { test } = inOther(terms, "score_values", "score_values_by_value", where);
				return { test: sql(`NOT ${test.text}`, ...test.parameters) };
			}
			if (condition.is !== "=") {
				const where = sql(`t.name = ? AND t.value ${condition.is} ?`, name, condition.value);
				return inOther(terms, "score_values", "score_values_by_value", where);
			}
			const shown = sql(`t.shown IN (${condition.value.map(() => "?").join()})`, ...condition.value);
			return inOther(terms, "score_values", "score_values_by_shown", allOf([isNamed, shown]));
		}
		case "error": {
			const test = sql(`c.has_error = ${condition.value ? "TRUE" : "FALSE"}`);
			return condition.value ? byIndex(test, "conversations_with_error") : { test };
		}
		case "gaps": {
			if (!condition.value) return { test: sql("c.gap_count = 0") };
			const { before } = condition;
			const isOlder = given([["c.gaps_since < ?", before && bindable(before)]]);
			return byIndex(allOf([sql("c.gap_count > 0"), isOlder]), "conversations_with_gaps");
		}
	}
}

/** @param where test of a row `t` of a table with several rows of a conversation */
function inOther({ dialect: { schema } }: Terms, table: TableName, index: string, where: Sql): SqlCondition {
	const isOf = "t.conversation_id = c.conversation_id";
	const test = `EXISTS (SELECT 1 FROM ${schema}${table} t WHERE ${isOf} AND ${where.text})`;
	const from = `${table} t INDEXED BY ${index} CROSS JOIN conversations c ON ${isOf}`;
	return { test: sql(test, ...where.parameters), index: { from, where } };
}

/** @param index undefined for one that SQLite chooses itself */
function byIndex(test: Sql, index: string | undefined): SqlCondition {
	const from = index === undefined ? "conversations c" : `conversations c INDEXED BY ${index}`;
	return { test, index: { from, where: test } };
}

/** Reads a conversation as lists return it. Without a record, `summary` is null. */
function conversationFrom(row: Row, record: StoredConversation["record"], order: ListOrder): StoredConversation {
	const activity = joinedActivityFrom(row);
	const [runStartedAt, value] = [nullable(bigint, row.run_started_at), row.order_value];
	const since = nullable(bigint, row.gaps_since);
	const gaps = since === undefined ? undefined : { count: bigint(row.gap_count), since };
	const shown = withErrorSequence(
		encodeActivity(activity, runStartedAt, gaps),
		shownError(activity, runStartedAt)?.sequence,
	);
	return {
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		...(order !== "updated" && { orderValue: typeof value === "number" ? value : bigint(value) }),
		summary: summaryFrom(row, shown, ownershipFrom(row)),
		record: currentRecordFrom(row, activity, record),
	};
}
