import { ServiceError } from "../errors.ts";
import { COST_UNITS } from "../record/stats.ts";
import type { Amounts } from "../usage/amounts.ts";
import { nameOf } from "../usage/names.ts";
import type { Condition } from "./condition.ts";
import { conditionSql } from "./conversation-lists.ts";
import { ALL_TIME, AMOUNT_COLUMNS, amountsFrom, PERIODS, periodStart } from "./rows.ts";
import { allOf, type Session, type Value } from "./session.ts";
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
	const { groups } = query;
	if (groups.some(({ kind }) => kind === "root") && (await session.isSpread()))
		throw new ServiceError(
			"failed_precondition",
			"usage cannot be grouped by root, because the tables are on several servers: group by conversation, and add up " +
				"the conversations below a root by their parent_conversation_id",
		);
	const ask = (build: (statement: ReturnType<typeof statementOf>) => string) => {
		const statement = statementOf(session, query);
		const sql = build(statement);
		return session.all(sql, ...statement.values);
	};
	const [found, counted, [total]] = await Promise.all([
		ask((statement) => statement.rows()),
		isOnSums(query) ? ask((statement) => statement.conversations()) : undefined,
		ask((statement) => statement.total()),
	]);
	const keyed = (row: Row) => {
		const isRest = boolean(row.is_rest);
		return { period: integer(row.period), group: isRest ? [] : groups.map((_, n) => text(row[`g${n}`])), isRest };
	};
	const counts = new Map(counted?.map((row) => [JSON.stringify(keyed(row)), row.conversations]));
	const rows = found.map((row) => {
		const key = keyed(row);
		const conversations = counted === undefined ? row.conversations : (counts.get(JSON.stringify(key)) ?? 0n);
		return { ...key, amounts: amountsFrom(row), conversations: integer(conversations) };
	});
	return { rows, conversations: integer(total?.conversations) };
}

/** Whether the sums tell the rows of a report. They do not have what only the record of a conversation has. */
function isOnSums({ groups, conditions }: UsageQuery): boolean {
	return conditions.every(isOnUsage) && !groups.some(({ kind }) => ["conversation", "root", "tag"].includes(kind));
}

/** Whether a condition is on the sender or the owner. Usage has them, also that of removed conversations. */
function isOnUsage(condition: Condition): condition is Extract<Condition, { kind: "equal" }> {
	return condition.kind === "equal" && (condition.field === "sender" || condition.field === "owner");
}

/** Returns what makes a statement of a report, whose values are collected in the order of their placeholders. */
function statementOf(session: Session, query: UsageQuery) {
	const { dialect } = session;
	const values: Value[] = [];
	/** Names of the columns of the groups. */
	const groupNames = query.groups.map((_, n) => `g${n}`);
	return { values, rows, conversations, total };

	/** Returns the statement for the rows; those from the ledger have their numbers of conversations. */
	function rows(): string {
		const isOfSums = isOnSums(query);
		const base = isOfSums ? sums() : ledger(query, AMOUNT_COLUMNS);
		const { largest, join, isRest, labels } = labelled("b");
		const numbers = [
			...AMOUNT_COLUMNS.map((name) => `${dialect.sum(`b.${name}`)} AS ${name}`),
			...(isOfSums ? [] : ["count(DISTINCT b.conversation_id) AS conversations"]),
		];
		return `
			WITH base AS (${base}) ${largest}
			SELECT * FROM (
				SELECT ${["b.period", ...labels, `${isRest} AS is_rest`, ...numbers].join()} FROM base b ${join}
				GROUP BY ${["b.period", ...groupNames.map((_, n) => n + 2), isRest].join()}
			) r
			WHERE ${AMOUNT_COLUMNS.map((name) => `${name} <> 0`).join(" OR ")}
			ORDER BY ${["period", "cost DESC", "prompt_tokens DESC", "is_rest", ...groupNames].join()}
			LIMIT ${add(query.limit + 1)}
		`;
	}

	/** Returns the statement for the numbers of conversations of rows that the sums answer. */
	function conversations(): string {
		const { periods, groups, top } = query;
		const hasLargest = top > 0 && groups.length > 0;
		const start = periods[0]?.first ?? 0n;
		const areDays =
			start % DAY === 0n &&
			periods.every(({ first, beyond }, n) => first === start + BigInt(n) * DAY && beyond === first + DAY);
		if (!hasLargest && periods.length > 1 && areDays) return days();
		const base = hasLargest ? `base AS (${sums()})` : "";
		const { largest, join, isRest, labels } = labelled("d");
		const names = ["period", ...groupNames, "is_rest"].join();
		// PostgreSQL finds distinct rows by a hash, but sorts them for count(DISTINCT …).
		return `
			WITH ${base} ${largest} ${hasLargest ? "," : ""} used AS (${used(query)})
			SELECT ${names}, count(*) AS conversations FROM (
				SELECT DISTINCT ${["d.period", ...labels, `${isRest} AS is_rest`, "d.conversation_id"].join()} FROM used d ${join}
			) e
			GROUP BY ${names}
		`;
	}

	/** Returns the statement for the number of all conversations. */
	function total(): string {
		const source = used({ groups: [], periods: spansOf(query.periods) });
		return `SELECT count(*) AS conversations FROM (SELECT DISTINCT d.conversation_id FROM (${source}) d) e`;
	}

	/** Adds a value; returns its placeholder. */
	function add(value: Value): string {
		values.push(value);
		return "?";
	}

	/** Returns the parts of a statement that give groups of `base` beyond the largest ones the label of the rest. */
	function labelled(alias: string) {
		const names = groupNames;
		const { top } = query;
		if (top === 0 || names.length === 0)
			return { largest: "", join: "", isRest: "0 = 1", labels: names.map((name) => `${alias}.${name} AS ${name}`) };
		const order = ["cost", "prompt_tokens", "completion_tokens"].map((name) => `${dialect.sum(name)} DESC`);
		return {
			largest: `, largest AS (
				SELECT ${names.join()}, 1 AS found FROM base GROUP BY ${names.join()}
				ORDER BY ${[...order, ...names].join()} LIMIT ${add(top)}
			)`,
			join: `LEFT JOIN largest l ON ${names.map((name) => `l.${name} = ${alias}.${name}`).join(" AND ")}`,
			isRest: "(l.found IS NULL)",
			labels: names.map((name) => `CASE WHEN l.found IS NULL THEN '' ELSE ${alias}.${name} END AS ${name}`),
		};
	}

	/** Returns the query for the segments, which `s` stands for. */
	function segments(of: readonly Segment[]): string {
		add({ rows: of.map(({ period, length, first, beyond }) => [BigInt(period), length, first, beyond]) });
		return `(${dialect.rowsOf({ period: "integer", length: "integer", first: "integer", beyond: "integer" })}) s`;
	}

	/** Returns the query for the sums of each period. */
	function sums(): string {
		const { periods } = query;
		const source = segments(periods.flatMap(coverOf));
		const names = query.groups.map(({ kind }, n) => `u.${kind} AS g${n}`);
		const amounts = AMOUNT_COLUMNS.map((name) => `${dialect.sum(`u.${name}`)} AS ${name}`);
		const test = ["u.length = s.length", "u.start >= s.first", "u.start < s.beyond", ...usageTests("u")];
		return `
			SELECT ${["s.period", ...names, ...amounts].join()}
			FROM ${source} ${dialect.lookUp(`${dialect.schema}usage_sums`, test.join(" AND "))}
			GROUP BY ${["s.period", ...names.map((_, n) => n + 2)].join()}
		`;
	}

	/** Returns the statement for the numbers of conversations of periods that are days, one after the other. */
	function days(): string {
		const { periods, groups } = query;
		const first = (periods[0]?.first ?? 0n) / DAY;
		const columns = groups.map((group, n) => groupColumn(group, n));
		// Grouped by the columns of the key, so that the index has the order of the groups.
		return `
			SELECT u.day - ${first} AS period, ${columns.map((column, n) => `${column} AS g${n},`).join(" ")} 0 = 1 AS is_rest,
				count(DISTINCT u.conversation_id) AS conversations
			FROM ${dialect.schema}usage_days u ${joinConversation(groups)}
			${whereSql([`u.day >= ${add(first)}`, `u.day < ${add(first + BigInt(periods.length))}`, ...usageTests("k")])}
			GROUP BY ${["u.day", ...columns].join()}
		`;
	}

	/** Returns the query for which conversations have usage in each period and group. */
	function used(of: Pick<UsageQuery, "groups" | "periods">): string {
		const isOfDays = of.periods.every(({ first, beyond }) => first % DAY === 0n && beyond % DAY === 0n);
		if (!isOfDays || !query.conditions.every(isOnUsage)) return ledger(of, []);
		const { schema, join } = dialect;
		const names = groupColumns(of.groups);
		const spans = of.periods.map(({ first, beyond }, period) => ({
			...{ period, length: 1n },
			...{ first: first / DAY, beyond: beyond / DAY },
		}));
		return `
			SELECT ${["s.period", "u.conversation_id", ...names].join()}
			FROM ${segments(spans)} ${join} ${schema}usage_days u ON u.day >= s.first AND u.day < s.beyond
				${joinConversation(of.groups)}
			${whereSql(usageTests("k"))}
		`;
	}

	/** Returns the query for rows of the ledger with their periods and groups, and some of their amounts. */
	function ledger({ periods, groups }: Pick<UsageQuery, "groups" | "periods">, amounts: readonly string[]): string {
		const conditions = query.conditions.filter((condition) => !isOnUsage(condition));
		const { schema, join } = dialect;
		const names = groupColumns(groups);
		const inPeriod = "u.quarter >= s.first AND u.quarter < s.beyond";
		const ofPeriods = segments(periods.map((period, n) => ({ period: n, length: 1n, ...period })));
		const isSame = "c.conversation_id = k.conversation_id";
		const needsRecord = conditions.length > 0 || groups.some(({ kind }) => kind === "root" || kind === "tag");
		// The usage of some conversations is read by their ids, not from all usage of the periods.
		const isNamed = conditions.some(({ kind }) => kind === "ids");
		const source = isNamed
			? `${join} ${schema}conversations c ON ${isMatching(conditions)}
				${join} ${schema}usage_conversations k ON ${isSame}
				${join} ${schema}usage_ledger u ON u.conversation_id = k.conversation_id AND ${inPeriod}`
			: `${join} ${schema}usage_ledger u ON ${inPeriod} ${joinConversation(groups, needsRecord)}
				${needsRecord ? `LEFT JOIN ${schema}conversations c ON ${isSame}` : ""}`;
		const tags = groups.map((group, n) =>
			group.kind === "tag"
				? `LEFT JOIN ${schema}tags t${n} ON t${n}.conversation_id = c.conversation_id AND t${n}.key = ${add(keyOf(group.key))}`
				: "",
		);
		const tests = [...usageTests("k"), ...(conditions.length === 0 || isNamed ? [] : [isMatching(conditions)])];
		return `
			SELECT ${["s.period", "u.conversation_id", ...names, ...amounts.map((name) => `u.${name}`)].join()}
			FROM ${ofPeriods} ${source} ${tags.join(" ")} ${whereSql(tests)}
		`;
	}

	/** Returns SQL for whether a conversation `c` is one of those that meet conditions. */
	function isMatching(conditions: readonly Condition[]): string {
		const { text: where, parameters } = allOf(conditionSql(conditions, session).map(({ test }) => test));
		values.push(...parameters);
		const { schema } = dialect;
		return `c.conversation_id IN (SELECT c.conversation_id FROM ${schema}conversations c WHERE ${where})`;
	}

	/** Returns the join that tests of the usage, or groups, need. */
	function joinConversation(groups: readonly UsageGroup[], isNeeded = false): string {
		const { owner, conditions } = query;
		const isTested = owner !== undefined || conditions.some(isOnUsage);
		const isGrouped = groups.some(({ kind }) => ["sender", "owner", "conversation"].includes(kind));
		if (!isNeeded && !isTested && !isGrouped) return "";
		return `JOIN ${dialect.schema}usage_conversations k ON k.conversation_id = u.conversation_id`;
	}

	/** Returns the tests of the sender and the owner of usage; `alias` is a table that has them. */
	function usageTests(alias: string): string[] {
		const { owner, conditions } = query;
		const tests = [
			...(owner === undefined ? [] : [{ field: "owner", value: owner }]),
			...conditions.filter(isOnUsage).map(({ field, value }) => ({ field, value: String(value) })),
		];
		return tests.map(({ field, value }) => `${alias}.${field} = ${add(nameOf(value))}`);
	}

	function groupColumns(groups: readonly UsageGroup[]): readonly string[] {
		return groups.map((group, n) => `${groupColumn(group, n)} AS g${n}`);
	}

	function groupColumn(group: UsageGroup, n: number): string {
		// Empty if the conversation was erased.
		const conversationId = "CASE WHEN k.ledger = '' THEN '' ELSE CAST(k.conversation_id AS text) END";
		switch (group.kind) {
			case "model":
			case "usage_id":
			case "agent_kind":
				return `u.${group.kind}`;
			case "sender":
			case "owner":
				return `k.${group.kind}`;
			case "conversation":
				return conversationId;
			case "tag":
				return `coalesce(t${n}.value, '')`;
			case "root": {
				const { owner } = query;
				// An owner does not learn what is above a conversation of another owner.
				const isOwners = owner === undefined ? "" : `AND p.owner = ${add(owner)}`;
				return `coalesce((
					WITH RECURSIVE up (id, depth) AS (
						SELECT c.parent_id, 1 WHERE c.parent_id IS NOT NULL
						UNION ALL
						SELECT p.parent_id, up.depth + 1 FROM up JOIN ${dialect.schema}conversations p
							ON p.conversation_id = ${dialect.idOf("up.id")}
						WHERE p.parent_id IS NOT NULL AND up.depth < ${MAX_DEPTH} ${isOwners}
					)
					SELECT id FROM up ORDER BY depth DESC LIMIT 1
				), ${conversationId})`;
			}
		}
	}
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

/** Length of a day in quarters of an hour. */
const DAY = 96n;

function whereSql(tests: readonly string[]): string {
	return tests.length === 0 ? "" : `WHERE ${tests.join(" AND ")}`;
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
		const [inner, outer] = [-periodStart(-from, length), periodStart(to, length)];
		if (inner >= outer) return cover(from, to, level - 1);
		const middle = { period, length, first: inner, beyond: outer };
		return [...cover(from, inner, level - 1), middle, ...cover(outer, to, level - 1)];
	};
	return cover(first, beyond, PERIODS.length - 1);
}
