import type { LogTable } from "../sequence-log.ts";
import type { Dialect, IndexAccess, Terms } from "../session.ts";
import { text } from "../values.ts";

function sequencesOf(log: LogTable) {
	return {
		used: `max(r.pruned_through, r.skipped_through, (SELECT coalesce(max(sequence), 0) FROM ${log}))`,
		skip: `UPDATE logs SET skipped_through = ? WHERE log = '${log}'`,
	};
}

const DIALECT: Dialect = {
	engine: "sqlite",
	schema: "",
	headKey: "id",
	headReference: "conversation",
	entries: {
		updates: {
			from: "updates e CROSS JOIN heads h ON h.id = e.conversation",
			ofOne: "heads h CROSS JOIN updates e INDEXED BY updates_by_conversation ON e.conversation = h.id",
			ofOwner: {
				from: `updates_of_owners o CROSS JOIN updates e ON e.sequence = o.sequence
					CROSS JOIN heads h ON h.id = e.conversation`,
				owner: "o.owner",
				sequence: "o.sequence",
			},
			conversationId: "h.conversation_id",
			owner: "h.owner",
			isOf: "conversation = (SELECT id FROM heads WHERE conversation_id = ?)",
			size: "e.size",
			...sequencesOf("updates"),
		},
		events: {
			from: "events e CROSS JOIN activities a ON a.id = e.activity",
			ofOne: "activities a CROSS JOIN events e INDEXED BY events_by_activity ON e.activity = a.id",
			ofOwner: {
				from: `events_of_owners o CROSS JOIN events e ON e.sequence = o.sequence
					CROSS JOIN activities a ON a.id = e.activity`,
				owner: "o.owner",
				sequence: "o.sequence",
			},
			conversationId: "a.conversation_id",
			owner: "a.owner",
			isOf: "activity = (SELECT id FROM activities WHERE conversation_id = ?)",
			size: "coalesce(e.unpacked_size, octet_length(e.text))",
			...sequencesOf("events"),
		},
	},
	eventsById: {
		from: "activities a CROSS JOIN events e INDEXED BY events_by_id ON e.activity = a.id",
		test: "TRUE",
	},
	eventsByResponse: `(SELECT value ->> 0 AS conversation_id, value ->> 1 AS response_id FROM json_each(?)) p
		CROSS JOIN activities a ON a.conversation_id = p.conversation_id
		CROSS JOIN events e INDEXED BY events_by_response ON e.activity = a.id AND e.llm_response_id = p.response_id`,
	newest: {
		updates: "(SELECT coalesce(max(sequence), 0) FROM updates)",
		events: "(SELECT coalesce(max(sequence), 0) FROM events)",
	},
	isCurrent: (head) => `u.sequence = ${head}.sequence`,
	isBase: (update) => `EXISTS (
		SELECT 1 FROM updates d INDEXED BY updates_by_base WHERE d.base_sequence = ${update}.sequence
	)`,
	isEvent: (row) => `e.sequence = ${row}.sequence`,
	// No head has a negative id.
	keyWithoutHead: "-a.id",
	isOfActivity: "e.activity = a.id",
	removals: "logs",
	clock: "store_state",
	title: "c.title",
	usageId: "conversation_id",
	// The row ids stay.
	usageReferences: [],
	sum: saturatingSum,
	quickSum: (column) => `sum(${column})`,
	realSum: (column) => `total(${column})`,
	least: "min",
	greatest: "max",
	jsonRows: (values) => `json_group_array(json_array(${values}))`,
	forUpdate: "",
	join: "CROSS JOIN",
	lookUp: (table, test) => `CROSS JOIN ${table} u ON ${test}`,
	segments: `
		SELECT value ->> 0 AS period, value ->> 1 AS length, value ->> 2 AS first, value ->> 3 AS beyond
		FROM json_each(?)
	`,
	isParent: "p.conversation_id = up.id",
	recordsAtOnce: 1,
	tagCondition({ key, value }) {
		const where =
			value === undefined
				? { text: "t.key = ?", parameters: [key] }
				: { text: "t.key = ? AND t.value = ?", parameters: [key, value] };
		const text = `EXISTS (SELECT 1 FROM tags t WHERE t.conversation = c.id AND ${where.text})`;
		const from = "tags t INDEXED BY tags_by_value";
		const join = "CROSS JOIN conversations c ON c.id = t.conversation";
		return { test: { text, parameters: where.parameters }, index: { from, join, where } };
	},
	titleCondition: ({ contains }) => ({ test: titleTest(contains), index: titleIndex(contains) }),
};

/**
 * Returns the sum of a column, as an integer of 64 bits that ends at its limits. It costs more than `sum`, which fails
 * beyond them. The upper and the lower 32 bits are summed up apart, so that neither sum can overflow.
 */
function saturatingSum(column: string): string {
	const lower = `sum(${column} & 4294967295)`;
	const upper = `(sum(${column} >> 32) + (${lower} >> 32))`;
	return `
		CASE WHEN ${upper} > 2147483647 THEN 9223372036854775807 WHEN ${upper} < -2147483648 THEN -9223372036854775808
			ELSE (${upper} << 32) | (${lower} & 4294967295) END
	`;
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

function isInList(column: string): string {
	return `${column} IN (SELECT value FROM json_each(?))`;
}

/** What statements for SQLite consist of. */
export const SQLITE: Terms = {
	dialect: DIALECT,
	isIn: isInList,
	isAmong: isInList,
	readText: text,
	storeText: (value) => value,
	storeKey: (value) => value,
};
