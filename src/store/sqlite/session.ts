import { release } from "../../memory.ts";
import { mergeProtected, mergeRecord } from "../../record/record-delta.ts";
import type { ListOrder } from "../condition.ts";
import { readOrUnreadable } from "../record-column.ts";
import { recordFrom } from "../rows.ts";
import type {
	Columns,
	Found,
	IndexAccess,
	RecordReader as RecordReaderOfSession,
	Session,
	SqlCondition,
	TitleChange,
	Value,
} from "../session.ts";
import { type Table, tableOf } from "../tables.ts";
import { bigint, integer, max, nullable, type Row, type StoredRecord, type Unreadable } from "../values.ts";
import { SQLITE } from "./dialect.ts";
import { skipSequences } from "./log.ts";
import { bound, insertInto as insertRow, type Statements, widenEventTimes } from "./statements.ts";
import { findDocuments, removeEventText, removeTitle, removeWords, writeWords } from "./text-index.ts";

/** Returns the session of a connection, in whose thread it runs. Statements run at once. */
export function sqliteSession(statements: Statements): Session {
	const run: Run = (sql, values) => statements.prepare(sql).all(...values.map(bound));
	const each = (sql: string, rows: readonly (readonly (Value | undefined)[])[]) => {
		const statement = statements.prepare(sql);
		for (const values of rows) statement.run(...values.map(bound));
	};
	return {
		...SQLITE,
		all: async (sql, ...values) => run(sql, values),
		stored: (_, row) =>
			Object.fromEntries(
				Object.entries(row).map(([name, value]) => [name, typeof value === "boolean" ? BigInt(value) : value]),
			),
		async write(table, changes) {
			for (const { before, after } of changes)
				if (before === undefined) run(insertInto(table.name, Object.keys(after)), Object.values(after));
				else updateRow(table, before, after, run);
		},
		async insert(table, rows, ifExists) {
			for (const row of rows) insertRow(statements, table, row, ifExists);
		},
		async insertEntries(log, rows) {
			const { column = "", table: conversations } = tableOf("sqlite", log).reference ?? {};
			for (const row of rows) {
				const find = statements.prepare(`SELECT id, owner FROM ${conversations} WHERE conversation_id = ?`);
				const { id, owner } = find.get(bound(row.conversation_id)) ?? {};
				insertRow(statements, log, { ...row, [column]: bigint(id) });
				if (typeof owner === "string") insertRow(statements, `${log}_of_owners`, { owner, sequence: row.sequence });
			}
			if (log === "events")
				widenEventTimes(
					statements,
					rows.map((row) => ({ sequence: bigint(row.sequence), happenedAt: bigint(row.happened_at) })),
				);
		},
		async removeEntries(log, sequences) {
			const { column = "", table: conversations } = tableOf("sqlite", log).reference ?? {};
			const last = sequences.reduce(max, 0n);
			run("UPDATE logs SET skipped_through = max(skipped_through, ?) WHERE log = ?", [last, log]);
			const isAmong = SQLITE.isAmong("e.sequence");
			run(
				`DELETE FROM ${log}_of_owners WHERE (owner, sequence) IN (
					SELECT o.owner, e.sequence FROM ${log} e CROSS JOIN ${conversations} o ON o.id = e.${column}
					WHERE ${isAmong} AND o.owner IS NOT NULL
				)`,
				[sequences],
			);
			const gone = run(`DELETE FROM ${log} AS e WHERE ${isAmong} RETURNING sequence`, [sequences]);
			if (log === "events") for (const sequence of sequences) removeEventText(statements, sequence);
			return gone.map(({ sequence }) => bigint(sequence));
		},
		async takeSequence() {
			return skipSequences(statements, "updates", 1n);
		},
		async removeTitleWords(conversationId) {
			const [head] = run("SELECT id FROM heads WHERE conversation_id = ?", [conversationId]);
			if (head !== undefined) removeTitle(statements, bigint(head.id));
		},
		async remove({ name, key }, keys) {
			each(
				`DELETE FROM ${name} WHERE ${allOf(key)}`,
				keys.map((row) => valuesOf(row, key)),
			);
		},
		async add(table, rows) {
			const { name, key } = table;
			const numbers = Object.keys(table.columns).filter((column) => !key.includes(column));
			each(
				`${insertInto(`${name} AS t`, Object.keys(table.columns))} ON CONFLICT DO UPDATE SET ${numbers.map(added).join()}`,
				rows.map((row) => valuesOf(row, Object.keys(table.columns))),
			);
			each(
				`DELETE FROM ${name} WHERE ${allOf(key)} AND ${numbers.map((number) => `${number} = 0`).join(" AND ")}`,
				rows.map((row) => valuesOf(row, key)),
			);
		},
		// The one writer has locked the database.
		lock: async () => undefined,
		lockTable: async () => undefined,
		async setOwner(conversationIds, owner) {
			for (const id of conversationIds) {
				for (const [table, entries] of LOGS_OF_OWNERS)
					run(`DELETE FROM ${table} WHERE (owner, sequence) IN (${entries})`, [id]);
				for (const table of OWNED) run(`UPDATE ${table} SET owner = ? WHERE conversation_id = ?`, [owner, id]);
				for (const [table, entries] of LOGS_OF_OWNERS) run(`INSERT INTO ${table} ${entries}`, [id]);
			}
		},
		find: async (conditions, order) => chooseIndex(statements, conditions, order),
		records: () => new RecordReader(statements),
		contents: {
			columns: "",
			read: ({ sequence }) =>
				statements
					.prepare("SELECT text, unpacked_size, checksum, secrets, redaction_version FROM events WHERE sequence = ?")
					.get(bigint(sequence)),
		},
		isSpread: async () => false,
		settled: async () => undefined,
		async newestEntries() {
			const [row] = run(
				`SELECT coalesce((SELECT max(sequence) FROM updates), 0) AS updates,
					coalesce((SELECT max(sequence) FROM events), 0) AS events`,
				[],
			);
			return { updates: bigint(row?.updates), events: bigint(row?.events) };
		},
		async writeTitles(changes) {
			for (const change of changes) if (change.before !== change.after) writeTitle(change, run);
		},
		async removeTitles() {
			run("INSERT INTO titles (titles) VALUES ('delete-all')", []);
		},
		writeWords: async (step) => writeWords(statements, step),
		findDocuments: async (query) => findDocuments(statements, query),
		removeWords: async () => removeWords(statements),
		// All events of the range are written anew in their order, so that they fill their pages. Rows that become shorter in
		// their place leave the pages half empty.
		async writeTexts({ first, last, texts }) {
			const range = "FROM events WHERE sequence BETWEEN ? AND ?";
			const rows = statements.prepare(`SELECT * ${range} ORDER BY sequence`).all(first, last);
			run(`DELETE ${range}`, [first, last]);
			const repacked = new Map(texts.map((text) => [text.sequence, text]));
			for (const row of rows) {
				const text = repacked.get(bigint(row.sequence));
				const isSame = text !== undefined && integer(row.checksum) === text.formerChecksum;
				const present = isSame
					? { ...row, text: text.record, unpacked_size: text.unpackedSize, checksum: text.checksum }
					: row;
				run(insertInto("events", Object.keys(present)), Object.values(present));
			}
		},
	};
}

/** Tables whose rows have the owner of their conversation. */
const OWNED = ["heads", "activities", "pruned"];
/** The logs of owners, with the query for the rows of a conversation. */
const LOGS_OF_OWNERS = [
	[
		"updates_of_owners",
		`SELECT c.owner, u.sequence FROM heads c CROSS JOIN updates u INDEXED BY updates_by_conversation
			ON u.conversation = c.id WHERE c.conversation_id = ? AND c.owner IS NOT NULL`,
	],
	[
		"events_of_owners",
		`SELECT a.owner, e.sequence FROM activities a CROSS JOIN events e INDEXED BY events_by_activity
			ON e.activity = a.id WHERE a.conversation_id = ? AND a.owner IS NOT NULL`,
	],
] as const;

type Run = (sql: string, values: readonly (Value | undefined)[]) => Row[];

/** Returns the assignment that adds to a column of table `t`. */
function added(column: string): string {
	const sum = `t.${column} + excluded.${column}`;
	// A sum of integers beyond 64 bits is a floating-point number.
	return `${column} = CASE typeof(${sum}) WHEN 'integer' THEN ${sum}
		ELSE iif(excluded.${column} > 0, 9223372036854775807, -9223372036854775808) END`;
}

function insertInto(name: string, names: readonly string[]): string {
	return `INSERT INTO ${name} (${names.join()}) VALUES (${names.map(() => "?").join()})`;
}

/**
 * Changes the columns of a row that differ, in one statement, which names no other column: SQLite writes the index of each
 * column that a statement names.
 */
function updateRow({ name, key }: Table, before: Row, after: Columns, run: Run): void {
	const changed = Object.keys(after).filter((column) => before[column] !== after[column]);
	if (changed.length === 0) return;
	run(
		`UPDATE ${name} SET ${changed.map((column) => `${column} = ?`).join()} WHERE ${allOf(key)}`,
		[...changed, ...key].map((column) => after[column] ?? null),
	);
}

function valuesOf(row: Columns, columns: readonly string[]): Value[] {
	return columns.map((column) => row[column] ?? null);
}

function writeTitle({ key, before, after }: TitleChange, run: Run): void {
	if (before !== undefined) run("DELETE FROM titles WHERE rowid = ?", [key]);
	if (after !== undefined) run("INSERT INTO titles (rowid, title) VALUES (?, ?)", [key, after]);
	run("UPDATE conversations SET title = ? WHERE id = ?", [after ?? null, key]);
}

function allOf(columns: readonly string[]): string {
	return columns.map((column) => `${column} = ?`).join(" AND ");
}

/** A record as it is stored: whole or a delta. */
interface RawRecord extends StoredRecord {
	/** Sequence number of the update whose record is the base of this delta; undefined when the record is whole. */
	readonly base: bigint | undefined;
}

/**
 * Reads the records of one result one by one, so that a damaged record does not fail the whole query. Successive deltas
 * over the same base read it once.
 */
export class RecordReader implements RecordReaderOfSession {
	readonly columns = "";
	readonly join = "";
	readonly #statements: Statements;
	#base: { readonly sequence: bigint; readonly record: StoredRecord } | undefined;

	constructor(statements: Statements) {
		this.#statements = statements;
	}

	read(row: Row): StoredRecord | Unreadable {
		return readOrUnreadable(() => {
			const { base, ...record } = this.readRaw(bigint(row.sequence));
			if (base === undefined) return record;
			if (this.#base?.sequence !== base) {
				this[Symbol.dispose]();
				this.#base = { sequence: base, record: this.readRaw(base) };
			}
			return mergeProtected(this.#base.record, record, mergeRecord);
		});
	}

	/** Frees the memory of the last base. */
	[Symbol.dispose](): void {
		if (this.#base !== undefined) release(this.#base.record.bytes);
		this.#base = undefined;
	}

	/** @throws Error when the record is missing or damaged */
	readRaw(sequence: bigint): RawRecord {
		const row = this.#statements
			.prepare(`
				SELECT base_sequence, record, unpacked_size, checksum, redaction_version, schema_version
				FROM updates WHERE sequence = ?
			`)
			.get(sequence);
		return { ...recordFrom(row), base: nullable(bigint, row?.base_sequence) };
	}
}

/** Maximum number of index entries that a list counts, or reads and sorts. */
const FEW_ENTRIES = 5_000;

/** The indexes by which all conversations are read in an order. */
const ORDERS: Readonly<Record<ListOrder, string>> = {
	updated: "conversations_by_sequence",
	activity: "conversations_by_activity",
	created: "conversations_by_created",
	cost: "conversations_by_cost",
	tokens: "conversations_by_tokens",
};

/**
 * Chooses the index by which conversations are found, whose rows are tested for the other conditions: see `Session.find`.
 *
 * A list reads and sorts the entries of the index with the fewest ones if it has fewer than {@link FEW_ENTRIES}; the cost then
 * does not grow with the number of conversations. Otherwise it reads the index of its order until the page is full, which is
 * soon, because many conversations match each condition. If few match all of them, it reads that index to its end.
 */
function chooseIndex(statements: Statements, conditions: readonly SqlCondition[], order: ListOrder | undefined): Found {
	// The index of owners has the order of updates.
	const ofOwner = order === "updated" ? conditions.find(({ isOwner }) => isOwner) : undefined;
	const [first, ...others] = conditions;
	const isOnlyOwner = first !== undefined && first === ofOwner && others.length === 0;
	const chosen = isOnlyOwner ? first : (fewestEntries(statements, conditions) ?? ofOwner);
	const of = order === undefined ? (chosen ?? conditions.find(({ index }) => index !== undefined)) : chosen;
	const tests = conditions.filter((condition) => condition !== of).map(({ test }) => test);
	if (of?.index === undefined) {
		const all = order === undefined ? "" : `INDEXED BY ${ORDERS[order]}`;
		return { from: `conversations c ${all}`, tests };
	}
	const { from, join, where } = of.index;
	return { from: `${from} ${join}`, tests: [where, ...tests] };
}

/** Returns the condition whose index has the fewest entries; undefined if none has fewer than {@link FEW_ENTRIES}. */
function fewestEntries(statements: Statements, conditions: readonly SqlCondition[]): SqlCondition | undefined {
	let fewest: SqlCondition | undefined;
	let entries = FEW_ENTRIES;
	for (const condition of conditions) {
		const count = condition.index === undefined ? entries : countEntries(statements, condition.index, entries);
		if (count < entries) {
			fewest = condition;
			entries = count;
		}
	}
	return fewest;
}

/** Counts the entries of an index that match its condition, up to a number. */
function countEntries(statements: Statements, { from, join, where }: IndexAccess, few: number): number {
	// The condition on the title also tests a column of the conversation, hence the join.
	const row = statements
		.prepare(`SELECT count(*) AS count FROM (SELECT 1 FROM ${from} ${join} WHERE ${where.text} LIMIT ${few})`)
		.get(...where.parameters.map(bound));
	return integer(row?.count);
}
