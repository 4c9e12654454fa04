import type { ListOrder } from "../condition.ts";
import type { Found, IndexAccess, SqlCondition } from "../session.ts";
import { integer } from "../values.ts";
import { bound } from "./rows.ts";
import type { Statements } from "./statements.ts";

/** Maximum number of index entries that a list counts, or reads and sorts if the index is not in list order. */
const FEW_ENTRIES = 1_000;

/** As {@link FEW_ENTRIES}, for lists in another order than that of the newest update: no index of a condition has it. */
const FEW_ENTRIES_TO_SORT = 10_000;

/** The indexes of each order by which all conversations are read, and those of an owner. */
const ORDERS: Readonly<Record<ListOrder, { readonly ofAll: string; readonly ofOwner: string }>> = {
	updated: { ofAll: "conversations_by_sequence", ofOwner: "conversations_by_owner" },
	activity: { ofAll: "conversations_by_activity", ofOwner: "conversations_of_owner_by_activity" },
	created: { ofAll: "conversations_by_created", ofOwner: "conversations_of_owner_by_created" },
	cost: { ofAll: "conversations_by_cost", ofOwner: "conversations_of_owner_by_cost" },
	tokens: { ofAll: "conversations_by_tokens", ofOwner: "conversations_of_owner_by_tokens" },
};

/**
 * Chooses the index by which conversations are found, whose rows are tested for the other conditions: see `Session.find`.
 *
 * A list reads the index with the fewest entries if it has fewer than {@link FEW_ENTRIES}; the cost then does not grow with
 * the number of conversations. Otherwise it reads an index in list order until the page is full. If each condition
 * matches many conversations but few match all conditions, it reads that index to its end.
 */
export function chooseIndex(
	statements: Statements,
	conditions: readonly SqlCondition[],
	order: ListOrder | undefined,
): Found {
	const fewest = chooseCondition(statements, conditions, order);
	if (order === undefined) {
		const chosen = fewest ?? conditions.find(({ index }) => index !== undefined);
		return found(chosen, chosen?.index, "conversations c", conditions);
	}
	const { ofAll, ofOwner } = ORDERS[order];
	const chosen = fewest ?? conditions.find(({ isOwner }) => isOwner);
	// The index of an owner has each order.
	if (chosen?.isOwner) return found(undefined, undefined, `conversations c INDEXED BY ${ofOwner}`, conditions);
	return found(chosen, chosen?.index, `conversations c INDEXED BY ${ofAll}`, conditions);
}

/** @param all what is read without an index of a condition */
function found(
	chosen: SqlCondition | undefined,
	index: IndexAccess | undefined,
	all: string,
	conditions: readonly SqlCondition[],
): Found {
	const others = conditions.filter((condition) => condition !== chosen).map(({ test }) => test);
	if (index === undefined) return { from: all, tests: others, sequence: "c.sequence" };
	const { from, join, where, sequence = "c.sequence" } = index;
	return { from: `${from} ${join}`, tests: [where, ...others], sequence };
}

/** Returns the condition whose index is read; undefined for none. */
function chooseCondition(
	statements: Statements,
	conditions: readonly SqlCondition[],
	order: ListOrder | undefined,
): SqlCondition | undefined {
	const [first, ...others] = conditions;
	const byUpdate = order === "updated";
	if (byUpdate && first?.index?.sequence !== undefined && others.length === 0) return first;
	const few = byUpdate ? FEW_ENTRIES : FEW_ENTRIES_TO_SORT;
	let fewest: SqlCondition | undefined;
	let entries = few;
	for (const condition of conditions) {
		const count = condition.index === undefined ? few : countEntries(statements, condition.index, few);
		if (count < entries) {
			fewest = condition;
			entries = count;
		}
	}
	return fewest ?? (byUpdate ? conditions.find(({ index }) => index?.sequence !== undefined) : undefined);
}

/** Counts the entries of an index that match its condition, up to a number. */
function countEntries(statements: Statements, { from, join, where }: IndexAccess, few: number): number {
	// The condition on the title also tests a column of the conversation, hence the join.
	const row = statements
		.prepare(`SELECT count(*) AS count FROM (SELECT 1 FROM ${from} ${join} WHERE ${where.text} LIMIT ${few})`)
		.get(...where.parameters.map(bound));
	return integer(row?.count);
}
