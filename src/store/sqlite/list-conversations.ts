import { hasCounts, hasTagCounts, type ListOrder } from "../condition.ts";
import type { IndexAccess, Sql, SqlCondition } from "../condition-sql.ts";
import type {
	ConversationQuery,
	CountQuery,
	StoredConversation,
	StoredCount,
	StoredCounts,
} from "../conversation-lists.ts";
import { conversationFrom } from "../rows.ts";
import { bigint, bindable, bindableNumber, integer, text } from "../values.ts";
import { findActivity } from "./activities.ts";
import { conditionsOf, parametersOf } from "./conditions.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";

/** Maximum number of index entries that a list counts, or reads and sorts if the index is not in list order. */
const FEW_ENTRIES = 1_000;

/** As {@link FEW_ENTRIES}, for lists in another order than that of the newest update: no index of a condition has it. */
const FEW_ENTRIES_TO_SORT = 10_000;

/**
 * The column of each order, and the indexes by which it reads all conversations and those of an owner. The indexes have
 * the sequence too.
 */
const ORDERS = {
	updated: { column: "c.sequence", index: "conversations_by_sequence", ofOwner: "conversations_by_owner" },
	activity: {
		column: "c.activity_at",
		index: "conversations_by_activity",
		ofOwner: "conversations_of_owner_by_activity",
	},
	created: {
		column: "c.created_at",
		index: "conversations_by_created",
		ofOwner: "conversations_of_owner_by_created",
	},
	cost: { column: "c.cost", index: "conversations_by_cost", ofOwner: "conversations_of_owner_by_cost" },
	tokens: { column: "c.tokens", index: "conversations_by_tokens", ofOwner: "conversations_of_owner_by_tokens" },
} as const;

/**
 * Lists conversations in an order: reads one index, and tests each row for the other conditions.
 *
 * It reads the index with the fewest entries if it has fewer than {@link FEW_ENTRIES}; the cost then does not grow with
 * the number of conversations. Otherwise it reads an index in list order until the page is full. If each condition
 * matches many conversations but few match all conditions, it reads that index to its end.
 */
export function listConversations(statements: Statements, query: ConversationQuery): StoredConversation[] {
	const { order = "updated", before = 2n ** 63n, beforeValue } = query;
	const conditions = conditionsOf(query.conditions);
	const fewest = chooseCondition(statements, conditions, order);
	const { column, index, ofOwner } = ORDERS[order];
	// The index of an owner has each order.
	const owner = conditions.find((condition) => condition.isOwner);
	const chosen = fewest ?? owner;
	const all: IndexAccess = {
		from: `conversations c INDEXED BY ${index}`,
		join: "",
		where: { text: "true", parameters: [] },
		sequence: order === "updated" ? column : undefined,
	};
	const own: IndexAccess | undefined = owner && {
		...all,
		from: `conversations c INDEXED BY ${ofOwner}`,
		where: owner.test,
	};
	const { from, join, where, sequence = "c.sequence" } = (chosen === owner ? own : chosen?.index) ?? all;
	const key = order === "updated" ? [sequence] : [column, sequence];
	const page =
		order !== "updated" && beforeValue === undefined
			? []
			: [...(beforeValue === undefined ? [] : [bindableNumber(beforeValue)]), bindable(before)];
	const tests = [where, ...conditions.filter((condition) => condition !== chosen).map(({ test }) => test)];
	if (page.length > 0) tests.push({ text: `(${key.join()}) < (${page.map(() => "?").join()})`, parameters: page });
	const rows = statements
		.prepare(`
			SELECT ${column} AS order_value, c.conversation_id, c.status, c.posted_at, c.run_started_at, c.sequence, c.sender,
				c.owner, c.gap_count, c.gaps_since, c.created_at, c.updated_at, u.summary
			FROM ${from} ${join} LEFT JOIN updates u ON u.sequence = c.sequence
			WHERE ${tests.map(({ text: test }) => test).join(" AND ")}
			ORDER BY ${key.map((part) => `${part} DESC`).join()} LIMIT ?
		`)
		.all(...parametersOf(tests), query.limit);
	using records = new RecordReader(statements);
	return rows.map((row) => {
		const activity = findActivity(statements, text(row.conversation_id));
		const record = query.withRecords && row.summary !== null ? records.read(bigint(row.sequence)) : undefined;
		return conversationFrom(row, text, activity, record, order);
	});
}

/** The column and the index of each value that conversations are counted by. */
const GROUPS = {
	executionStatus: { column: "status", index: "conversations_by_status" },
	agentKind: { column: "agent_kind", index: "conversations_by_agent_kind" },
	model: { column: "model", index: "conversations_by_model" },
	sender: { column: "sender", index: "conversations_by_sender" },
	owner: { column: "owner", index: "conversations_by_owner" },
} as const;

/**
 * Counts conversations: sums up the kept counts, or if they do not tell, reads the index of one condition, or that of the
 * group when there is no condition.
 */
export function countConversations(statements: Statements, { conditions, group, limit }: CountQuery): StoredCounts {
	const sql = conditionsOf(conditions);
	const chosen = hasCounts(conditions)
		? undefined
		: (chooseCondition(statements, sql, "activity") ?? sql.find(({ index }) => index !== undefined));
	const count = (column: string, number: string, from: string, tests: readonly Sql[]): StoredCount[] => {
		const where = tests.length === 0 ? "" : `WHERE ${tests.map(({ text: test }) => test).join(" AND ")}`;
		return statements
			.prepare(
				`SELECT ${column} AS value, ${number} AS count FROM ${from} ${where} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?`,
			)
			.all(...parametersOf(tests), limit)
			.map(({ value, count: counted }) => ({
				value: typeof value === "bigint" ? Number(value) : text(value),
				count: integer(counted),
			}));
	};
	const kept = (column: string, table: string, own: readonly Sql[] = []) =>
		count(column, "sum(c.number)", `${table} c`, [...sql.map(({ test }) => test), ...own]);
	const scanned = (column: string, all: string, join: string, own: readonly Sql[] = []) => {
		const index = chosen?.index ?? { from: all, join: "", where: { text: "true", parameters: [] } };
		const others = sql.filter((condition) => condition !== chosen).map(({ test }) => test);
		return count(column, "count(*)", `${index.from} ${index.join} ${join}`, [index.where, ...others, ...own]);
	};
	const all = () =>
		hasCounts(conditions)
			? kept("''", "conversation_counts")
			: scanned("''", "conversations c INDEXED BY conversations_by_sequence", "");
	const total = () => all()[0]?.count ?? 0;
	if (group === undefined) return { counts: [], total: total() };
	if (group.by === "tagKey" || group.by === "tag") {
		const own = (alias: string) => (group.by === "tag" ? [{ text: `${alias}.key = ?`, parameters: [group.key] }] : []);
		const [column, table] = group.by === "tag" ? ["value", "tag_value_counts"] : ["key", "tag_key_counts"];
		const counts = hasTagCounts(conditions)
			? kept(`c.${column}`, table, own("c"))
			: scanned(`g.${column}`, "conversations c", "CROSS JOIN tags g ON g.conversation = c.id", own("g"));
		return { counts, total: total() };
	}
	const { column, index } = GROUPS[group.by];
	const counts = hasCounts(conditions)
		? kept(`c.${column}`, "conversation_counts")
		: scanned(`coalesce(c.${column}, '')`, `conversations c INDEXED BY ${index}`, "");
	return { counts, total: counts.length < limit ? counts.reduce((sum, one) => sum + one.count, 0) : total() };
}

/** Returns the condition whose index a list reads; undefined for the index of all conversations. */
function chooseCondition(
	statements: Statements,
	conditions: readonly SqlCondition[],
	order: ListOrder,
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
		.get(...parametersOf([where]));
	return integer(row?.count);
}
