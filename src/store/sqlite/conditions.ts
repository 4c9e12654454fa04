import type { SQLInputValue } from "node:sqlite";
import type { Condition } from "../condition.ts";
import { conditionSql, type IndexAccess, type OwnConditions, type Sql, type SqlCondition } from "../condition-sql.ts";
import { bound } from "./entries.ts";

const OWN: OwnConditions = {
	key: (value) => value,
	ids: (ids) => ids,
	isIn: (column) => `${column} IN (SELECT value FROM json_each(?))`,
	tag({ key, value }) {
		const where =
			value === undefined
				? { text: "t.key = ?", parameters: [key] }
				: { text: "t.key = ? AND t.value = ?", parameters: [key, value] };
		// By the sequence, because the indexes have it.
		const text = `EXISTS (SELECT 1 FROM tags t WHERE t.sequence = c.sequence AND ${where.text})`;
		const from = `tags t INDEXED BY ${value === undefined ? "tags_by_key" : "tags_by_value"}`;
		const join = "CROSS JOIN conversations c ON c.id = t.conversation";
		return { test: { text, parameters: where.parameters }, index: { from, join, where, sequence: "t.sequence" } };
	},
	title: ({ contains }) => ({ test: titleTest(contains), index: titleIndex(contains) }),
};

/** Translates conditions into SQL for SQLite. */
export function conditionsOf(conditions: readonly Condition[]): SqlCondition[] {
	return conditionSql(conditions, OWN);
}

/** Returns the values of the placeholders of fragments. */
export function parametersOf(fragments: readonly Sql[]): SQLInputValue[] {
	return fragments.flatMap(({ parameters }) => parameters.map(bound));
}

/** SQLite's lower() changes only ASCII letters, which is how {@link Condition} compares titles. */
function titleTest(contained: string) {
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
