import { ServiceError } from "../errors.ts";
import { COST_UNITS } from "../record/stats.ts";
import { AMOUNTS, type Amounts, sumOf } from "../usage/amounts.ts";
import { nameOf } from "../usage/names.ts";
import type { Condition } from "./condition.ts";
import { allOf, conditionSql } from "./conversation-lists.ts";
import { ALL_TIME, AMOUNT_COLUMNS, amountsFrom, PERIODS } from "./rows.ts";
import type { Dialect, Session, Value } from "./session.ts";
import { bigint, boolean, integer, keyOf, nullable, type Row, text } from "./values.ts";

/**
 * Reports of usage. The sums over conversations answer a report that neither groups nor filters by what only the record of
 * a conversation has; its numbers of conversations come from the ledger. The ledger answers all others, with a cost that
 * grows with the usage in the range.
 */

/** What a report groups by. */
export type UsageGroup =
	| { readonly kind: "model" | "usage_id" | "agent_kind" | "sender" | "owner" | "conversation" | "root" }
	| { readonly kind: "tag"; readonly key: string };

/** A period of a report, in quarters of an hour from the Unix epoch: from `first` to before `beyond`. */
export interface UsagePeriod {
	readonly first: bigint;
	readonly beyond: bigint;
}

export interface UsageQuery {
	/** In order, without overlaps. */
	readonly periods: readonly UsagePeriod[];
	readonly groups: readonly UsageGroup[];
	/** Conditions on the sender and the owner of the usage, and on the present records of the conversations. */
	readonly conditions: readonly Condition[];
	/** Only conversations of this owner. */
	readonly owner?: string | undefined;
	/** Number of groups, those with the largest cost; the others make one row in each period. 0: all groups. */
	readonly top: number;
	/** Maximum number of rows. One more may be returned, to show that there are more. */
	readonly limit: number;
}

export interface UsageReport {
	/** By period, then by falling cost. */
	readonly rows: readonly UsageReportRow[];
	/** Number of conversations with usage in any of the periods. */
	readonly conversations: number;
}

interface UsageReportRow {
	/** Index of the period. */
	readonly period: number;
	/** Values of the groups in their order; empty for the row of the other groups. */
	readonly group: readonly string[];
	readonly isRest: boolean;
	readonly amounts: Amounts;
	readonly conversations: number;
}

/** Usage of a model. */
export interface ModelUsage {
	readonly model: string;
	/** In units of the record's currency. */
	readonly cost: number;
	readonly calls: number;
	/** By the columns of the kinds of tokens, without the suffix `_tokens`. */
	readonly tokens: Readonly<Record<string, number>>;
}

/** Returns the usage of each model, over all time and all conversations. */
export async function listModelUsage({ all, dialect: { schema, sum } }: Session): Promise<ModelUsage[]> {
	const sums = AMOUNT_COLUMNS.map((name) => `${sum(name)} AS ${name}`);
	const rows = await all(
		`SELECT model, ${sums.join()} FROM ${schema}usage_sums WHERE length = ${ALL_TIME} GROUP BY model`,
	);
	const kinds = AMOUNT_COLUMNS.filter((name) => name.endsWith("_tokens"));
	return rows.map((row) => ({
		model: text(row.model),
		cost: Number(row.cost) / COST_UNITS,
		calls: Number(row.calls),
		tokens: Object.fromEntries(kinds.map((name) => [name.slice(0, -"_tokens".length), Number(row[name])])),
	}));
}

/** The usage of a conversation, over all time. */
export interface UsageTotal {
	readonly conversationId: string;
	readonly amounts: Amounts;
}

/** Maximum number of conversations of {@link listUsageTotals}. */
const MAX_TOTALS = 1_000;

/**
 * Returns the usage of conversations that were not erased, in the order of their ids.
 *
 * @param after id after which they begin; empty for the first ones
 */
export async function listUsageTotals({ all, isIn, dialect }: Session, after: string): Promise<UsageTotal[]> {
	const { schema, sum } = dialect;
	const found = await all(
		`SELECT conversation_id FROM ${schema}usage_conversations
		WHERE ${after === "" ? "TRUE" : "conversation_id > ?"} AND ledger <> ''
		ORDER BY conversation_id LIMIT ${MAX_TOTALS}`,
		...(after === "" ? [] : [after]),
	);
	// A second statement, because Citus copies a whole table that is joined to rows with a limit.
	const rows = await all(
		`SELECT k.conversation_id, ${AMOUNT_COLUMNS.map((name) => `${sum(`l.${name}`)} AS ${name}`).join()}
		FROM ${schema}usage_conversations k LEFT JOIN ${schema}usage_ledger l ON l.conversation_id = k.conversation_id
		WHERE ${isIn("k.conversation_id")} GROUP BY k.conversation_id ORDER BY k.conversation_id`,
		found.map(({ conversation_id }) => text(conversation_id)),
	);
	return rows.map((row) => {
		const amounts = Object.fromEntries(AMOUNT_COLUMNS.map((name) => [name, row[name] ?? 0n]));
		return { conversationId: text(row.conversation_id), amounts: amountsFrom(amounts) };
	});
}

/** Returns a range that has all usage: see `Store.getUsageRange`. */
export async function getUsageRange(
	{ all, dialect: { schema } }: Session,
	owner: string | undefined,
): Promise<UsagePeriod | undefined> {
	const days = `FROM ${schema}usage_sums WHERE length = ${DAY} ${owner === undefined ? "" : "AND owner = ?"}`;
	const values = owner === undefined ? [] : [nameOf(owner)];
	// SQLite reads one end of an index for a minimum or a maximum, but the whole index for both in one query.
	const [row] = await all(
		`SELECT (SELECT min(start) ${days}) AS first, (SELECT max(start) + ${DAY} ${days}) AS beyond`,
		...values,
		...values,
	);
	const first = nullable(bigint, row?.first);
	return first === undefined ? undefined : { first, beyond: bigint(row?.beyond) };
}

/** Makes a statement of a session, whose values are collected in the order of their placeholders. */
class StatementBuilder {
	readonly values: Value[] = [];
	readonly session: Session;
	readonly dialect: Dialect;

	constructor(session: Session) {
		this.session = session;
		this.dialect = session.dialect;
	}

	/** Adds a value; returns its placeholder. */
	value(value: Value): string {
		this.values.push(value);
		return "?";
	}

	/** Returns the placeholder of a name. */
	name(name: string): string {
		return this.value(name);
	}

	/** Returns the query for the segments, which `s` stands for. */
	segments(segments: readonly Segment[]): string {
		this.value({ rows: segments.map(({ period, length, first, beyond }) => [BigInt(period), length, first, beyond]) });
		return this.dialect.rowsOf({ period: "integer", length: "integer", first: "integer", beyond: "integer" });
	}

	/** SQL for the id of a conversation `k` of usage_conversations, as a text; empty if it was erased. */
	get conversationId(): string {
		return `CASE WHEN k.ledger = '' THEN '' ELSE CAST(k.conversation_id AS text) END`;
	}

	/** Returns the query for the ids of the conversations that meet conditions. */
	matching(conditions: readonly Condition[]): string {
		const translated = conditionSql(conditions, this.session);
		const { text: where, parameters } = allOf(translated.map(({ test }) => test));
		this.values.push(...parameters);
		return `SELECT c.conversation_id FROM ${this.dialect.schema}conversations c WHERE ${where}`;
	}
}

/** A statement of a report. */
interface UsageStatement {
	readonly kind: "rows" | "conversations" | "total";
	readonly build: (statement: StatementBuilder) => string;
}

/** Periods of the sums that are asked for. */
export interface UsedPeriodsQuery extends UsagePeriod {
	/** Length of the periods in quarters of an hour, of which `first` is a multiple. */
	readonly length: (typeof USED_LENGTHS)[keyof typeof USED_LENGTHS];
	/** Only usage of conversations of this owner. */
	readonly owner?: string | undefined;
	/** Maximum number of periods. */
	readonly limit: number;
}

/** Lengths of the periods for which the store can tell which of them have usage. */
export const USED_LENGTHS = { hour: 4n, day: 96n } as const;

/** Returns the starts of the periods that have usage, in order. */
export async function listUsedPeriods(
	{ all, dialect: { schema } }: Session,
	{ length, first, beyond, owner, limit }: UsedPeriodsQuery,
): Promise<bigint[]> {
	const [ofOwner, owners] = owner === undefined ? ["", []] : ["AND u.owner = ?", [nameOf(owner)]];
	// Looks up one start after the other, because a period may have many sums.
	const next = (test: string) =>
		`SELECT min(u.start) FROM ${schema}usage_sums u WHERE u.length = ${length} AND u.start ${test} ${ofOwner}`;
	const rows = await all(
		`WITH RECURSIVE used (start) AS (
			${next(">= ?")}
			UNION ALL
			SELECT (${next("> used.start")}) FROM used WHERE used.start < ?
		)
		SELECT start FROM used WHERE start < ? LIMIT ?`,
		first,
		...owners,
		...owners,
		beyond,
		beyond,
		limit,
	);
	return rows.map(({ start }) => bigint(start));
}

/**
 * Sums up usage.
 *
 * @throws ServiceError `failed_precondition` for groups by the root with a database that cannot follow parents
 */
export async function reportUsage(session: Session, query: UsageQuery): Promise<UsageReport> {
	if (query.groups.some(({ kind }) => kind === "root") && (await session.isSpread()))
		throw new ServiceError(
			"failed_precondition",
			"usage cannot be grouped by root, because the tables are on several servers: group by conversation, and add up " +
				"the conversations below a root by their parent_conversation_id",
		);
	const run = async ({ kind, build }: UsageStatement): Promise<[UsageStatement["kind"], Row[]]> => {
		const statement = new StatementBuilder(session);
		const sql = build(statement);
		return [kind, await session.all(sql, ...statement.values)];
	};
	return readUsageReport(query, new Map(await Promise.all(statementsOf(query).map(run))));
}

/** Returns the statements of a report, which must read the same state of the database. */
function statementsOf(query: UsageQuery): UsageStatement[] {
	const byConversation =
		onRecords(query).length > 0 || query.groups.some(({ kind }) => ["conversation", "root", "tag"].includes(kind));
	const source = byConversation ? "ledger" : "sums";
	return [
		{ kind: "rows", build: (statement) => rowsSql(query, source, statement) },
		...(byConversation
			? []
			: [
					{
						kind: "conversations",
						build: (statement: StatementBuilder) => conversationsSql(query, statement),
					} as const,
				]),
		{ kind: "total", build: (statement) => totalSql(query, statement) },
	];
}

/** Returns the report of the rows that its statements returned. */
function readUsageReport(
	{ groups }: UsageQuery,
	results: ReadonlyMap<UsageStatement["kind"], readonly Row[]>,
): UsageReport {
	const keyed = (row: Row) => {
		const isRest = boolean(row.is_rest);
		const group = isRest ? [] : groups.map((_, n) => text(row[`g${n}`]));
		return { period: integer(row.period), group, isRest };
	};
	const keyOf = (row: Row) => JSON.stringify(keyed(row));
	const counts = new Map(results.get("conversations")?.map((row) => [keyOf(row), integer(row.conversations)]));
	const rows = (results.get("rows") ?? []).map((row) => ({
		...keyed(row),
		amounts: amountsFrom(row),
		conversations: results.has("conversations") ? (counts.get(keyOf(row)) ?? 0) : integer(row.conversations),
	}));
	return { rows, conversations: integer(results.get("total")?.[0]?.conversations) };
}

/** Returns the conditions that only the present records can tell. */
function onRecords({ conditions }: UsageQuery): readonly Condition[] {
	return conditions.filter((condition) => !isOnUsage(condition));
}

/** Whether a condition is on the sender or the owner. Usage has them, also that of removed conversations. */
function isOnUsage(condition: Condition): condition is Extract<Condition, { kind: "equal" }> {
	return condition.kind === "equal" && (condition.field === "sender" || condition.field === "owner");
}

/** Whether the sender or the owner of usage is tested. */
function hasUsageTests({ owner, conditions }: UsageQuery): boolean {
	return owner !== undefined || conditions.some(isOnUsage);
}

/** Returns the tests of the sender and the owner of usage; `alias` is a table that has them. */
function usageTests({ owner, conditions }: UsageQuery, alias: string, statement: StatementBuilder): string[] {
	const tests = [
		...(owner === undefined ? [] : [{ field: "owner", value: owner }]),
		...conditions.filter(isOnUsage).map((condition) => ({ field: condition.field, value: String(condition.value) })),
	];
	return tests.map((test) => `${alias}.${test.field} = ${statement.name(nameOf(test.value))}`);
}

const COLUMNS = AMOUNT_COLUMNS.join();

/** Returns the statement for the rows; those from the ledger have their numbers of conversations. */
function rowsSql(query: UsageQuery, source: "sums" | "ledger", statement: StatementBuilder): string {
	const { groups, limit } = query;
	const names = groups.map((_, n) => `g${n}`);
	const counted = source === "ledger" ? ", count(DISTINCT b.conversation_id) AS conversations" : "";
	const sums = AMOUNT_COLUMNS.map((name) => `${statement.dialect.sum(`b.${name}`)} AS ${name}`);
	const base = `base AS (${baseSql(query, source, statement)})`;
	const labelled = labelledSql(query, statement, "b");
	return `
		WITH ${base} ${labelled.top === "" ? "" : `, ${labelled.top}`}
		SELECT * FROM (
			SELECT b.period, ${[...labelled.names, `${labelled.isRest} AS is_rest`, ...sums].join()} ${counted}
			FROM base b ${labelled.join}
			GROUP BY b.period ${names.map((_, n) => `, ${n + 2}`).join("")}, ${labelled.isRest}
		) r
		WHERE ${AMOUNT_COLUMNS.map((name) => `${name} <> 0`).join(" OR ")}
		ORDER BY ${["period", "cost DESC", "prompt_tokens DESC", "is_rest", ...names].join()}
		LIMIT ${statement.value(limit + 1)}
	`;
}

/** Returns the statement for the numbers of conversations of rows that the sums answer. */
function conversationsSql(query: UsageQuery, statement: StatementBuilder): string {
	const isLabelled = query.top > 0 && query.groups.length > 0;
	if (!isLabelled && query.periods.length > 1 && query.periods.every(isDayAfter(query.periods[0])))
		return daysSql(query, statement);
	const base = isLabelled ? `base AS (${baseSql(query, "sums", statement)}),` : "";
	const labelled = labelledSql(query, statement, "d");
	const names = ["period", ...query.groups.map((_, n) => `g${n}`), "is_rest"].join();
	// PostgreSQL finds distinct rows by a hash, but sorts them for count(DISTINCT …).
	return `
		WITH ${base} ${isLabelled ? `${labelled.top},` : ""} used AS (${usedSql(query, query.groups, statement)})
		SELECT ${names}, count(*) AS conversations FROM (
			SELECT DISTINCT d.period, ${[...labelled.names, `${labelled.isRest} AS is_rest`].join()}, d.conversation_id
			FROM used d ${labelled.join}
		) e
		GROUP BY ${names}
	`;
}

function totalSql(query: UsageQuery, statement: StatementBuilder): string {
	const used = usedSql({ ...query, periods: spansOf(query.periods) }, [], statement);
	return `SELECT count(*) AS conversations FROM (SELECT DISTINCT d.conversation_id FROM (${used}) d) e`;
}

/** Returns the periods, those together as one that follow each other without a gap. */
function spansOf(periods: readonly UsagePeriod[]): UsagePeriod[] {
	const spans: UsagePeriod[] = [];
	for (const period of periods) {
		const last = spans.at(-1);
		if (last?.beyond === period.first) spans.splice(-1, 1, { first: last.first, beyond: period.beyond });
		else spans.push(period);
	}
	return spans;
}

/** Returns the parts of a statement that give groups beyond the largest ones the label of the rest. */
function labelledSql({ groups, top }: UsageQuery, statement: StatementBuilder, alias: string) {
	const names = groups.map((_, n) => `g${n}`);
	if (top === 0 || names.length === 0)
		return { top: "", join: "", isRest: "0 = 1", names: names.map((name) => `${alias}.${name} AS ${name}`) };
	const total = AMOUNT_COLUMNS.slice(1, 3).map((name) => statement.dialect.sum(name));
	return {
		top: `largest AS (
			SELECT ${names.join()}, 1 AS found FROM base GROUP BY ${names.join()}
			ORDER BY ${statement.dialect.sum("cost")} DESC, ${total.join(" DESC, ")} DESC, ${names.join()} LIMIT ${statement.value(top)}
		)`,
		join: `LEFT JOIN largest l ON ${names.map((name) => `l.${name} = ${alias}.${name}`).join(" AND ")}`,
		isRest: "(l.found IS NULL)",
		names: names.map((name) => `CASE WHEN l.found IS NULL THEN '' ELSE ${alias}.${name} END AS ${name}`),
	};
}

/** Returns the query for the usage of each period and group. */
function baseSql(query: UsageQuery, source: "sums" | "ledger", statement: StatementBuilder): string {
	if (source === "ledger") return ledgerSql(query, query.groups, COLUMNS, statement);
	const { dialect } = statement;
	const segments = statement.segments(query.periods.flatMap(coverOf));
	const names = query.groups.map(({ kind }, n) => `u.${kind} AS g${n}`);
	const sums = AMOUNT_COLUMNS.map((name) => `${statement.dialect.sum(`u.${name}`)} AS ${name}`);
	const inSegment = ["u.length = s.length", "u.start >= s.first", "u.start < s.beyond"];
	const test = [...inSegment, ...usageTests(query, "u", statement)].join(" AND ");
	return `
		SELECT s.period, ${[...names, ...sums].join()}
		FROM (${segments}) s ${dialect.lookUp(`${dialect.schema}usage_sums`, test)}
		GROUP BY s.period ${query.groups.map((_, n) => `, ${n + 2}`).join("")}
	`;
}

/** Returns the statement for the numbers of conversations of periods that are days, one after the other. */
function daysSql(query: UsageQuery, statement: StatementBuilder): string {
	const { periods, groups, owner } = query;
	const first = (periods[0]?.first ?? 0n) / DAY;
	const names = groups.map((group) => groupColumn(group, 0, owner, statement));
	// Grouped by the columns of the key, so that the index has the order of the groups.
	return `
		SELECT u.day - ${first} AS period, ${names.map((name, n) => `${name} AS g${n},`).join(" ")} 0 = 1 AS is_rest,
			count(DISTINCT u.conversation_id) AS conversations
		FROM ${statement.dialect.schema}usage_days u ${joinConversation(query, groups, statement)}
		WHERE ${[
			`u.day >= ${statement.value(first)}`,
			`u.day < ${statement.value(first + BigInt(periods.length))}`,
			...usageTests(query, "k", statement),
		].join(" AND ")}
		GROUP BY ${["u.day", ...names].join()}
	`;
}

/** Returns the join that tests of the usage, or groups, need. */
function joinConversation(
	query: UsageQuery,
	groups: readonly UsageGroup[],
	{ dialect: { schema } }: StatementBuilder,
): string {
	const isNeeded = hasUsageTests(query) || groups.some(({ kind }) => kind === "sender" || kind === "owner");
	return isNeeded ? `JOIN ${schema}usage_conversations k ON k.conversation_id = u.conversation_id` : "";
}

/** Length of a day in quarters of an hour. */
const DAY = 96n;

function isDayAfter(start: UsagePeriod | undefined): (period: UsagePeriod, n: number) => boolean {
	return ({ first, beyond }, n) =>
		start !== undefined &&
		start.first % DAY === 0n &&
		first === start.first + BigInt(n) * DAY &&
		beyond === first + DAY;
}

/** Returns the query for which conversations have usage in each period and group. */
function usedSql(query: UsageQuery, groups: readonly UsageGroup[], statement: StatementBuilder): string {
	const { periods, owner } = query;
	const isOfDays = periods.every(({ first, beyond }) => first % DAY === 0n && beyond % DAY === 0n);
	if (!isOfDays || onRecords(query).length > 0) return ledgerSql(query, groups, "", statement);
	const { schema, join } = statement.dialect;
	const names = groups.map((group, n) => `, ${groupColumn(group, n, owner, statement)} AS g${n}`);
	const whole = periods.map(({ first, beyond }, n) => ({
		...{ period: n, length: 1n },
		...{ first: first / DAY, beyond: beyond / DAY },
	}));
	return `
		SELECT s.period, u.conversation_id ${names.join("")}
		FROM (${statement.segments(whole)}) s ${join} ${schema}usage_days u
			ON u.day >= s.first AND u.day < s.beyond ${joinConversation(query, groups, statement)}
		${whereSql(usageTests(query, "k", statement))}
	`;
}

/** Returns the query for rows of the ledger with their periods and groups, and the given columns. */
function ledgerSql(
	query: UsageQuery,
	groups: readonly UsageGroup[],
	columns: string,
	statement: StatementBuilder,
): string {
	const { periods, owner } = query;
	const conditions = onRecords(query);
	const { schema, join } = statement.dialect;
	const names = groups.map((group, n) => `${groupColumn(group, n, owner, statement)} AS g${n}`);
	const amounts = columns === "" ? [] : columns.split(",").map((name) => `u.${name}`);
	const whole = periods.map((period, n) => ({ period: n, length: 1n, ...period }));
	const inPeriod = "u.quarter >= s.first AND u.quarter < s.beyond";
	const periodsOf = `(${statement.segments(whole)}) s`;
	const isNamed = conditions.some(({ kind }) => kind === "ids");
	const isSame = "c.conversation_id = k.conversation_id";
	// The usage of some conversations is read by their ids, not from all usage of the periods.
	const source = isNamed
		? `${periodsOf} ${join} ${schema}conversations c ON c.conversation_id IN (${statement.matching(conditions)})
			${join} ${schema}usage_conversations k ON ${isSame}
			${join} ${schema}usage_ledger u ON u.conversation_id = k.conversation_id AND ${inPeriod}`
		: `${periodsOf} ${join} ${schema}usage_ledger u ON ${inPeriod}`;
	const needsRecord = groups.some(({ kind }) => kind === "root" || kind === "tag") || conditions.length > 0;
	const needsConversation =
		needsRecord ||
		hasUsageTests(query) ||
		groups.some(({ kind }) => kind === "sender" || kind === "owner" || kind === "conversation");
	const joins = [
		...(needsConversation && !isNamed
			? [`JOIN ${schema}usage_conversations k ON k.conversation_id = u.conversation_id`]
			: []),
		...(needsRecord && !isNamed ? [`LEFT JOIN ${schema}conversations c ON ${isSame}`] : []),
		...groups.flatMap((group, n) =>
			group.kind === "tag"
				? [
						`LEFT JOIN ${schema}tags t${n} ON t${n}.conversation_id = c.conversation_id AND t${n}.key = ${statement.name(keyOf(group.key))}`,
					]
				: [],
		),
	];
	const tests = [
		...usageTests(query, "k", statement),
		...(conditions.length === 0 || isNamed ? [] : [`c.conversation_id IN (${statement.matching(conditions)})`]),
	];
	return `
		SELECT s.period, u.conversation_id ${[...names, ...amounts].map((name) => `, ${name}`).join("")}
		FROM ${source} ${joins.join("\n")} ${whereSql(tests)}
	`;
}

function whereSql(tests: readonly string[]): string {
	return tests.length === 0 ? "" : `WHERE ${tests.join(" AND ")}`;
}

function groupColumn(group: UsageGroup, n: number, owner: string | undefined, statement: StatementBuilder): string {
	switch (group.kind) {
		case "model":
		case "usage_id":
		case "agent_kind":
			return `u.${group.kind}`;
		case "sender":
		case "owner":
			return `k.${group.kind}`;
		case "conversation":
			return statement.conversationId;
		case "tag":
			return `coalesce(t${n}.value, '')`;
		case "root": {
			// An owner does not learn what is above a conversation of another owner.
			const isOwners = owner === undefined ? "" : `AND p.owner = ${statement.name(owner)}`;
			return `coalesce((
				WITH RECURSIVE up (id, depth) AS (
					SELECT c.parent_id, 1 WHERE c.parent_id IS NOT NULL
					UNION ALL
					SELECT p.parent_id, up.depth + 1 FROM up JOIN ${statement.dialect.schema}conversations p
						ON p.conversation_id = ${statement.dialect.idOf("up.id")}
					WHERE p.parent_id IS NOT NULL AND up.depth < ${MAX_DEPTH} ${isOwners}
				)
				SELECT id FROM up ORDER BY depth DESC LIMIT 1
			), ${statement.conversationId})`;
		}
	}
}

/** Maximum number of parents above a conversation that are followed, should they make a circle. */
const MAX_DEPTH = 100;

interface Segment extends UsagePeriod {
	/** Index of the period. */
	readonly period: number;
	readonly length: bigint;
}

/** Returns the longest periods of sums that make up a period. */
function coverOf({ first, beyond }: UsagePeriod, period: number): Segment[] {
	const cover = (from: bigint, to: bigint, level: number): Segment[] => {
		const length = PERIODS[level];
		if (length === undefined || from >= to) return [];
		const [inner, outer] = [from + modulo(-from, length), to - modulo(to, length)];
		if (inner >= outer) return cover(from, to, level - 1);
		const middle = { period, length, first: inner, beyond: outer };
		return [...cover(from, inner, level - 1), middle, ...cover(outer, to, level - 1)];
	};
	return cover(first, beyond, PERIODS.length - 1);
}

function modulo(value: bigint, by: bigint): bigint {
	return ((value % by) + by) % by;
}

/** Returns the sum of the rows of a report, and whether a number is at the limit of its type. */
export function totalOf(rows: readonly Pick<UsageReportRow, "amounts">[]): Amounts {
	return sumOf(rows.map(({ amounts }) => amounts));
}

const LIMITS = new Set([2n ** 63n - 1n, -(2n ** 63n)]);

/** Whether a number is at the limit of its type, so that the sum may be beyond. */
export function isLimited(amounts: Amounts): boolean {
	return AMOUNTS.some((name) => LIMITS.has(amounts[name]));
}
