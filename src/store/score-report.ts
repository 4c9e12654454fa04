import type { Condition } from "./condition.ts";
import { conditionSql } from "./conversation-lists.ts";
import { allOf, given, type Session } from "./session.ts";
import { bindable, keyOf, nullable, text } from "./values.ts";

/** Reports of scores. */

/** What a report groups by. A day is a number of days since the Unix epoch (UTC). */
export type ScoreGroup =
	| { readonly kind: "model" | "agent_kind" | "sender" | "owner" | "day" }
	| { readonly kind: "tag"; readonly key: string };

export interface ScoreReportQuery {
	readonly name: string;
	/** Microseconds since the Unix epoch: given at `from` or later, and before `to`. Undefined bounds do not apply. */
	readonly from: bigint | undefined;
	readonly to: bigint | undefined;
	readonly groups: readonly ScoreGroup[];
	/** Conditions that the conversations must meet now. */
	readonly conditions: readonly Condition[];
	/** Maximum number of rows of each kind. One more may be returned, to show that there are more. */
	readonly limit: number;
}

/** What the scores of a group with a kind, and if that is asked for with a category, add up to. */
export interface ScoreSums {
	readonly group: readonly string[];
	/** `number`, `boolean` or `category`. */
	readonly kind: string;
	readonly category: string | undefined;
	readonly count: number;
	/** Sum of the numbers, or number of trues. */
	readonly total: number;
	/** The conversations of the scores, how many of them have no cost, and the cost of the others. */
	readonly conversations: number;
	readonly withoutCost: number;
	readonly cost: number;
}

export interface ScoreReport {
	readonly rows: readonly ScoreSums[];
	/** The rows of categories, each by itself. */
	readonly categories: readonly ScoreSums[];
	/** Rows that add up to all scores, in which each conversation counts once. */
	readonly all: readonly ScoreSums[];
}

/**
 * Sums up scores. A report over all time by the columns of `score_values` reads that table alone. Others read the scores, or look
 * up each conversation.
 */
export async function reportScores(session: Session, query: ScoreReportQuery): Promise<ScoreReport> {
	const rows = await sumsOf(session, query, ["kind"]);
	const hasCategories = rows.some(({ kind }) => kind === "category");
	const hasDay = query.groups.some(({ kind }) => kind === "day");
	return {
		rows,
		categories: hasCategories ? await sumsOf(session, query, ["kind", "category"]) : [],
		// Only by the day are there several groups of a conversation.
		all: hasDay ? await sumsOf(session, { ...query, groups: [] }, ["kind"]) : rows,
	};
}

/** @param by columns of scores by which they are summed up, beside the groups */
async function sumsOf(session: Session, query: ScoreReportQuery, by: readonly string[]): Promise<ScoreSums[]> {
	const { name, from, to, groups, conditions, limit } = query;
	const { schema, join } = session.dialect;
	const where = given([
		["name = ?", name],
		["given_at >= ?", from && bindable(from)],
		["given_at < ?", to && bindable(to)],
	]);
	const hasDay = groups.some(({ kind }) => kind === "day");
	const isWhole = !hasDay && where.parameters.length === 1 && !by.includes("category");
	const isOnValues = conditions.every(isConditionOnValues);
	const columns = ["conversation_id", ...by, ...(hasDay ? [`${DAY_OF} AS day`] : []), "name"];
	// Those of each conversation are summed up first, so that it is looked up once.
	const scores = isWhole
		? `SELECT * FROM ${schema}score_values WHERE ${where.text}`
		: `SELECT ${columns.join()}, count(*) AS scores, sum(value) AS total FROM ${schema}scores
			WHERE ${where.text} GROUP BY ${columns.map((_, n) => n + 1).join()}`;
	// The rows of `score_values` are smaller than those of conversations.
	const of = isOnValues ? `${schema}score_values c ON c.name = t.name AND` : `${schema}conversations c ON`;
	const [source, sums] =
		isWhole && isOnValues
			? [`(${scores}) c`, "c"]
			: [`(${scores}) t ${join} ${of} c.conversation_id = t.conversation_id`, "t"];
	const [kinds, day] = [by.map((column) => `${sums}.${column}`), `${sums}.day`];
	const tags = groups.flatMap((group, n) => (group.kind === "tag" ? [{ n, key: keyOf(group.key) }] : []));
	const joined = tags.map(
		({ n }) => `LEFT JOIN ${schema}tags g${n} ON g${n}.conversation_id = c.conversation_id AND g${n}.key = ?`,
	);
	const values = groups.map(({ kind }, n) => (kind === "tag" ? `g${n}.value` : kind === "day" ? day : `c.${kind}`));
	const tests = allOf(conditionSql(conditions, session).map(({ test }) => test));
	// A cost that was not reported is negative.
	const rows = await session.all(
		`SELECT ${[...values.map((value, n) => `${value} AS g${n}`), ...kinds].join()}, sum(${sums}.scores) AS scores,
			sum(${sums}.total) AS total, count(*) AS conversations, sum(CASE WHEN c.cost < 0 THEN 1 ELSE 0 END) AS unpriced,
			sum(CASE WHEN c.cost < 0 THEN 0 ELSE c.cost END) AS cost
		FROM ${source} ${joined.join(" ")} WHERE ${tests.text} GROUP BY ${[...values, ...kinds].join()} LIMIT ?`,
		...where.parameters,
		...tags.map(({ key }) => key),
		...tests.parameters,
		limit + 1,
	);
	return rows.map((row) => ({
		group: groups.map((_, n) => String(row[`g${n}`] ?? "")),
		kind: text(row.kind),
		category: row.category === undefined ? undefined : nullable(text, row.category),
		count: Number(row.scores),
		total: Number(row.total),
		conversations: Number(row.conversations),
		withoutCost: Number(row.unpriced),
		cost: Number(row.cost),
	}));
}

/** Whether the rows of `score_values` have what a condition needs. */
function isConditionOnValues(condition: Condition): boolean {
	if (condition.kind !== "equal") return ["tag", "ids", "score", "cost"].includes(condition.kind);
	return ["model", "agentKind", "sender", "owner"].includes(condition.field);
}

const DAY = 86_400_000_000n;
/** SQL for the day of a score, rounded down, also before the Unix epoch. */
const DAY_OF = `(given_at - ((given_at % ${DAY}) + ${DAY}) % ${DAY}) / ${DAY}`;
