import { conversationFrom } from "../rows.ts";
import type { ConversationQuery, StoredConversation } from "../store.ts";
import { bigint, bindable, integer, text } from "../values.ts";
import { findActivity } from "./activities.ts";
import { conditionSql, type IndexAccess, type SqlCondition } from "./condition-sql.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";

/** Maximum number of index entries that a list counts, or reads and sorts if the index is not in list order. */
const FEW_ENTRIES = 1_000;

/** Reads all conversations, newest current update first. */
const ALL_CONVERSATIONS: IndexAccess = {
	from: "conversations c INDEXED BY conversations_by_sequence",
	join: "",
	where: { text: "true", parameters: [] },
	sequence: "c.sequence",
};

/**
 * Lists conversations: reads one index, and tests each row for the other conditions.
 *
 * It reads the index with the fewest entries if it has fewer than {@link FEW_ENTRIES}; the cost then does not grow with
 * the number of conversations. Otherwise it reads an index in list order until the page is full. If each condition
 * matches many conversations but few match all conditions, it reads that index to its end.
 */
export function listConversations(statements: Statements, query: ConversationQuery): StoredConversation[] {
	const conditions = conditionSql(query.conditions);
	const chosen = chooseCondition(statements, conditions);
	const { from, join, where, sequence } = chosen?.index ?? ALL_CONVERSATIONS;
	const order = sequence ?? "c.sequence";
	const tests = [where, ...conditions.filter((condition) => condition !== chosen).map(({ test }) => test)];
	const rows = statements
		.prepare(`
			SELECT c.conversation_id, c.status, c.posted_at, c.sequence, c.sender, c.owner, u.summary
			FROM ${from} ${join} CROSS JOIN updates u ON u.sequence = c.sequence
			WHERE ${tests.map(({ text: test }) => test).join(" AND ")} AND ${order} < ? ORDER BY ${order} DESC LIMIT ?
		`)
		.all(...tests.flatMap(({ parameters }) => parameters), bindable(query.before ?? 2n ** 63n), query.limit);
	using records = new RecordReader(statements);
	return rows.map((row) => {
		const activity = findActivity(statements, text(row.conversation_id));
		return conversationFrom(row, text, activity, query.withRecords ? records.read(bigint(row.sequence)) : undefined);
	});
}

/** Returns the condition whose index a list reads; undefined for the index of all conversations. */
function chooseCondition(statements: Statements, conditions: readonly SqlCondition[]): SqlCondition | undefined {
	const [first, ...others] = conditions;
	if (first?.index?.sequence !== undefined && others.length === 0) return first;
	let fewest: SqlCondition | undefined;
	let entries = FEW_ENTRIES;
	for (const condition of conditions) {
		const count = condition.index === undefined ? FEW_ENTRIES : countEntries(statements, condition.index);
		if (count < entries) {
			fewest = condition;
			entries = count;
		}
	}
	return fewest ?? conditions.find(({ index }) => index?.sequence !== undefined);
}

/** Counts the entries of an index that match its condition, up to {@link FEW_ENTRIES}. */
function countEntries(statements: Statements, { from, join, where }: IndexAccess): number {
	// The condition on the title also tests a column of the conversation, hence the join.
	const row = statements
		.prepare(`SELECT count(*) AS count FROM (SELECT 1 FROM ${from} ${join} WHERE ${where.text} LIMIT ${FEW_ENTRIES})`)
		.get(...where.parameters);
	return integer(row?.count);
}
