import type { SQLInputValue } from "node:sqlite";
import type { Condition } from "../condition.ts";
import { bindable } from "../values.ts";

/** A fragment of SQL with the values of its placeholders. */
export interface Sql {
	readonly text: string;
	readonly parameters: readonly SQLInputValue[];
}

/** An index through which a query reads conversations. Their alias is `c`. */
export interface IndexAccess {
	/** Table and index for FROM. */
	readonly from: string;
	/** Join with `c` if the table is another one. */
	readonly join: string;
	readonly where: Sql;
	/** Column by which the index is in list order; undefined if the index has another order. */
	readonly sequence: string | undefined;
}

/** A condition in SQL: a test of a row of `c`, and an index that finds all rows which pass it, if there is one. */
export interface SqlCondition {
	readonly test: Sql;
	readonly index: IndexAccess | undefined;
	/** Whether it is the owner. */
	readonly isOwner?: boolean;
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

/** Translates conditions into SQL. Merges all conditions on the same time into one range. */
export function conditionSql(conditions: readonly Condition[]): SqlCondition[] {
	const ranges = new Map<TimeCondition["field"], TimeCondition>();
	const others = conditions.filter((condition) => {
		if (condition.kind !== "time") return true;
		ranges.set(condition.field, intersection(condition, ranges.get(condition.field)));
		return false;
	});
	return [...others, ...ranges.values()].map(oneConditionSql);
}

type TimeCondition = Extract<Condition, { kind: "time" }>;

function intersection(a: TimeCondition, b: TimeCondition | undefined): TimeCondition {
	if (b === undefined) return a;
	const from = a.from === undefined || (b.from !== undefined && b.from > a.from) ? b.from : a.from;
	const to = a.to === undefined || (b.to !== undefined && b.to < a.to) ? b.to : a.to;
	return { kind: "time", field: a.field, ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) };
}

function oneConditionSql(condition: Condition): SqlCondition {
	switch (condition.kind) {
		case "equal": {
			const { column, index } = COLUMNS[condition.field];
			const test = { text: `c.${column} = ?`, parameters: [condition.value] };
			const from = `conversations c INDEXED BY ${index}`;
			const access = { from, join: "", where: test, sequence: "c.sequence" };
			return { test, index: access, isOwner: condition.field === "owner" };
		}
		case "tag": {
			const { key, value } = condition;
			const where =
				value === undefined
					? { text: "t.key = ?", parameters: [key] }
					: { text: "t.key = ? AND t.value = ?", parameters: [key, value] };
			// By the sequence, because the indexes have it.
			const text = `EXISTS (SELECT 1 FROM tags t WHERE t.sequence = c.sequence AND ${where.text})`;
			const from = `tags t INDEXED BY ${value === undefined ? "tags_by_key" : "tags_by_value"}`;
			const join = "CROSS JOIN conversations c ON c.id = t.conversation";
			return { test: { text, parameters: where.parameters }, index: { from, join, where, sequence: "t.sequence" } };
		}
		case "time": {
			const { column, index } = COLUMNS[condition.field];
			const parameters = [bindable(condition.from ?? -(2n ** 63n)), bindable(condition.to ?? 2n ** 63n)];
			const test = { text: `c.${column} >= ? AND c.${column} < ?`, parameters };
			const from = `conversations c INDEXED BY ${index}`;
			return { test, index: { from, join: "", where: test, sequence: undefined } };
		}
		case "one_of": {
			const { column, index } = COLUMNS[condition.field];
			const { values } = condition;
			const test = { text: `c.${column} IN (${values.map(() => "?").join()})`, parameters: values };
			return {
				test,
				index: { from: `conversations c INDEXED BY ${index}`, join: "", where: test, sequence: undefined },
			};
		}
		case "ids": {
			const text = "c.conversation_id IN (SELECT value FROM json_each(?))";
			const test = { text, parameters: [JSON.stringify(condition.ids)] };
			return { test, index: { from: "conversations c", join: "", where: test, sequence: undefined } };
		}
		case "cost": {
			const { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY } = condition;
			const test = { text: "c.cost >= ? AND c.cost < ?", parameters: [from, to] };
			const index = "conversations c INDEXED BY conversations_by_cost";
			return { test, index: { from: index, join: "", where: test, sequence: undefined } };
		}
		case "error": {
			const test = { text: `c.has_error = ${condition.value ? 1 : 0}`, parameters: [] };
			const from = "conversations c INDEXED BY conversations_with_error";
			return { test, index: condition.value ? { from, join: "", where: test, sequence: "c.sequence" } : undefined };
		}
		case "gaps": {
			const before = condition.value ? condition.before : undefined;
			const test = {
				text: `${condition.value ? "c.gap_count > 0" : "c.gap_count = 0"}${before === undefined ? "" : " AND c.gaps_since < ?"}`,
				parameters: before === undefined ? [] : [bindable(before)],
			};
			const from = "conversations c INDEXED BY conversations_with_gaps";
			return { test, index: condition.value ? { from, join: "", where: test, sequence: "c.sequence" } : undefined };
		}
		case "title":
			return { test: titleTest(condition.contains), index: titleIndex(condition.contains) };
	}
}

/** SQLite's lower() changes only ASCII letters, which is how {@link Condition} compares titles. */
function titleTest(contained: string): Sql {
	return { text: "instr(lower(c.title), lower(?)) > 0", parameters: [contained] };
}

/**
 * Returns access to the conversations with a text in their titles, by trigrams of the text. Undefined for a text of
 * fewer than three characters or with a NUL, for which there is no full-text query.
 */
function titleIndex(contained: string): IndexAccess | undefined {
	const characters = [...contained];
	const trigrams = characters.slice(2).map((_, start) => characters.slice(start, start + 3).join(""));
	if (trigrams.length === 0 || contained.includes("\0")) return undefined;
	const query = sample([...new Set(trigrams)], MAX_TRIGRAMS).map((trigram) => `"${trigram.replaceAll('"', '""')}"`);
	const test = titleTest(contained);
	return {
		from: "titles",
		join: "CROSS JOIN conversations c ON c.id = titles.rowid",
		where: { text: `titles MATCH ? AND ${test.text}`, parameters: [query.join(" AND "), ...test.parameters] },
		sequence: undefined,
	};
}

/** Maximum number of trigrams that are looked up. The titles that they find are tested for the whole text. */
const MAX_TRIGRAMS = 3;

/** Returns at most `count` of the items, evenly spaced. */
function sample<Item>(items: readonly Item[], count: number): Item[] {
	return items.filter(
		(_, index) => Math.floor((index * count) / items.length) !== Math.floor(((index - 1) * count) / items.length),
	);
}
