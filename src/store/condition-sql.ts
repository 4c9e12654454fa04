import type { Condition } from "./condition.ts";
import type { Sql, SqlCondition, Terms } from "./session.ts";
import { bindable } from "./values.ts";

/** Returns the fragment that is true where all are. */
export function allOf(fragments: readonly Sql[]): Sql {
	return {
		text: fragments.length === 0 ? "TRUE" : fragments.map(({ text }) => text).join(" AND "),
		parameters: fragments.flatMap(({ parameters }) => parameters),
	};
}

/** The columns of fields, and their indexes. Those for equality are in the order of lists. */
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
	return [...others, ...ranges.values()].map((condition, n) => oneConditionSql(condition, terms, `t${n}`));
}

function intersection(a: TimeCondition, b: TimeCondition | undefined): TimeCondition {
	if (b === undefined) return a;
	const from = a.from === undefined || (b.from !== undefined && b.from > a.from) ? b.from : a.from;
	const to = a.to === undefined || (b.to !== undefined && b.to < a.to) ? b.to : a.to;
	return { kind: "time", field: a.field, ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) };
}

function oneConditionSql(condition: Condition, terms: Terms, alias: string): SqlCondition {
	switch (condition.kind) {
		case "equal": {
			const { column, index } = COLUMNS[condition.field];
			const value = typeof condition.value === "string" ? terms.storeKey(condition.value) : condition.value;
			const test = { text: `c.${column} = ?`, parameters: [value] };
			return { ...byIndex(test, index, "c.sequence"), isOwner: condition.field === "owner" };
		}
		case "tag":
			return terms.dialect.tagCondition(condition, alias);
		case "title":
			return terms.dialect.titleCondition(condition, alias);
		case "time": {
			const { column, index } = COLUMNS[condition.field];
			const parameters = [bindable(condition.from ?? -(2n ** 63n)), bindable(condition.to ?? 2n ** 63n)];
			return byIndex({ text: `c.${column} >= ? AND c.${column} < ?`, parameters }, index);
		}
		case "one_of": {
			const { column, index } = COLUMNS[condition.field];
			const { values } = condition;
			return byIndex({ text: `c.${column} IN (${values.map(() => "?").join()})`, parameters: values }, index);
		}
		case "ids":
			return byIndex({ text: terms.isIn("c.conversation_id"), parameters: [condition.ids] }, undefined);
		case "cost": {
			const { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY } = condition;
			return byIndex({ text: "c.cost >= ? AND c.cost < ?", parameters: [from, to] }, "conversations_by_cost");
		}
		case "error": {
			const test = { text: `c.has_error = ${condition.value ? "TRUE" : "FALSE"}`, parameters: [] };
			return condition.value ? byIndex(test, "conversations_with_error", "c.sequence") : { test };
		}
		case "gaps": {
			if (!condition.value) return { test: { text: "c.gap_count = 0", parameters: [] } };
			const { before } = condition;
			const test =
				before === undefined
					? { text: "c.gap_count > 0", parameters: [] }
					: { text: "c.gap_count > 0 AND c.gaps_since < ?", parameters: [bindable(before)] };
			return byIndex(test, "conversations_with_gaps", "c.sequence");
		}
	}
}

/** @param index undefined for one that SQLite chooses itself */
function byIndex(test: Sql, index: string | undefined, sequence?: string): SqlCondition {
	const from = index === undefined ? "conversations c" : `conversations c INDEXED BY ${index}`;
	return { test, index: { from, join: "", where: test, sequence } };
}
