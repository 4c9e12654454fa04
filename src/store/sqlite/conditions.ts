import type { SQLInputValue } from "node:sqlite";
import type { ConversationFilter } from "../store.ts";
import { bindable } from "./values.ts";

/** A piece of SQL with the values for its placeholders. */
export interface Sql {
	readonly text: string;
	readonly parameters: readonly SQLInputValue[];
}

/** Where an index yields the sequences of conversations in order. Conversations are called `c`. */
export interface Access {
	/** The table with its index, as FROM names it. */
	readonly from: string;
	/** How the conversation joins, where the table is another one. */
	readonly join: string;
	/** The column that holds the sequence of the conversation's current update. */
	readonly sequence: string;
	readonly where: Sql;
}

/** A condition on conversations: the test of a row, and what leads to all rows that pass it. */
export interface Condition {
	readonly test: Sql;
	readonly source: Source;
}

/** An index, or what must be looked up first: a range of times, or a text in titles. */
export type Source =
	| { readonly kind: "index"; readonly access: Access }
	| { readonly kind: "range"; readonly range: TimeRange }
	| { readonly kind: "title"; readonly needle: string };

/** A range of times; it includes `from` and excludes `to`. */
export interface TimeRange {
	readonly column: "created" | "updated";
	readonly from: bigint;
	readonly to: bigint;
}

/** All conversations, newest current update first. */
export const everything: Access = {
	from: "conversations c INDEXED BY conversations_by_sequence",
	join: "",
	sequence: "c.sequence",
	where: { text: "true", parameters: [] },
};

/** The conditions of a filter. */
export function conditionsOf(filter: ConversationFilter): Condition[] {
	const conditions: Condition[] = [];
	const equal = (column: string, index: string, value: string | undefined) => {
		if (value === undefined) return;
		const test = { text: `c.${column} = ?`, parameters: [value] };
		const from = `conversations c INDEXED BY ${index}`;
		const access = { from, join: "", sequence: "c.sequence", where: test };
		conditions.push({ test, source: { kind: "index", access } });
	};
	const tagged = (index: string, match: Sql) => {
		const of = "SELECT 1 FROM tags t WHERE t.conversation = c.id";
		const test = { text: `EXISTS (${of} AND ${match.text})`, parameters: match.parameters };
		const from = `tags t INDEXED BY ${index}`;
		const join = "CROSS JOIN conversations c ON c.id = t.conversation";
		const access = { from, join, sequence: "t.sequence", where: match };
		conditions.push({ test, source: { kind: "index", access } });
	};
	equal("status", "conversations_by_status", filter.status);
	equal("agent_kind", "conversations_by_agent_kind", filter.agentKind);
	equal("model", "conversations_by_model", filter.model);
	equal("parent_id", "conversations_by_parent", filter.parentId);
	for (const [key, value] of Object.entries(filter.tags ?? {})) {
		tagged("tags_by_value", { text: "t.key = ? AND t.value = ?", parameters: [key, value] });
	}
	if (filter.tagKey !== undefined) tagged("tags_by_key", { text: "t.key = ?", parameters: [filter.tagKey] });
	for (const range of rangesOf(filter)) {
		conditions.push({ test: within(range, "c."), source: { kind: "range", range } });
	}
	const needle = filter.titleContains;
	if (needle !== undefined) conditions.push({ test: titleContains(needle), source: { kind: "title", needle } });
	return conditions;
}

function rangesOf(filter: ConversationFilter): TimeRange[] {
	const ranges: TimeRange[] = [];
	const range = (column: TimeRange["column"], from: bigint | undefined, to: bigint | undefined) => {
		if (from === undefined && to === undefined) return;
		ranges.push({ column, from: bindable(from ?? -(2n ** 63n)), to: bindable(to ?? 2n ** 63n) });
	};
	range("created", filter.createdFrom, filter.createdTo);
	range("updated", filter.updatedFrom, filter.updatedTo);
	return ranges;
}

/** The test whether a time lies in a range; `prefix` stands before the column's name. */
export function within({ column, from, to }: TimeRange, prefix = ""): Sql {
	return { text: `${prefix}${column}_at >= ? AND ${prefix}${column}_at < ?`, parameters: [from, to] };
}

/** The test whether the title contains a text. SQLite's lower() changes ASCII letters only, as the contract has it. */
export function titleContains(needle: string): Sql {
	return { text: "instr(lower(c.title), lower(?)) > 0", parameters: [needle] };
}
