import type { ListOrder } from "../condition.ts";
import {
	type Columns,
	type Found,
	type IndexAccess,
	readNewest,
	type Session,
	type SqlCondition,
	type Value,
} from "../session.ts";
import { type TableName, tableOf } from "../tables.ts";
import { integer, type Row } from "../values.ts";
import { bound, IN_LIST, insertInto as insertRow, type Prepares, SQLITE, type Statements } from "./sql.ts";
import { findTexts, writeWords } from "./text-index.ts";

/**
 * Returns the session of a connection, in whose thread it runs. Statements run at once. None runs when a failure has ended the
 * transaction, although the caller has not waited for the statement before.
 */
export function sqliteSession(connection: Statements): Session {
	const statements = {
		prepare(sql: string) {
			connection.requireTransaction();
			return connection.prepare(sql);
		},
	};
	const run: Run = (sql, values) => statements.prepare(sql).all(...values.map(bound));
	const each = (sql: string, rows: readonly (readonly (Value | undefined)[])[]) => {
		const statement = statements.prepare(sql);
		for (const values of rows) statement.run(...values.map(bound));
	};
	const update = (name: TableName, before: Row, after: Columns) => {
		// SQLite writes the index of each column that a statement names.
		const changed = Object.keys(after).filter((column) => before[column] !== bound(after[column]));
		if (changed.length === 0) return;
		const { key } = tableOf(name);
		run(
			`UPDATE ${name} SET ${changed.map((column) => `${column} = ?`).join()} WHERE ${allOf(key)}`,
			[...changed, ...key].map((column) => after[column]),
		);
	};
	const all: Session["all"] = async (sql, ...values) => run(...ofOne(sql, values));
	return {
		...SQLITE,
		all,
		async write(table, changes) {
			for (const { before, after } of changes)
				if (before === undefined) insertRow(statements, table, after);
				else update(table, before, after);
		},
		async insert(table, rows, ifExists) {
			for (const row of rows) insertRow(statements, table, row, ifExists);
		},
		async remove(table, keys) {
			const { key } = tableOf(table);
			each(
				`DELETE FROM ${table} WHERE ${allOf(key)}`,
				keys.map((row) => valuesOf(row, key)),
			);
		},
		async add(table, rows) {
			const { columns, key } = tableOf(table);
			const numbers = Object.keys(columns).filter((column) => !key.includes(column));
			for (const row of rows) insertRow(statements, table, row, `UPDATE SET ${numbers.map(added).join()}`);
			each(
				`DELETE FROM ${table} WHERE ${allOf(key)} AND ${numbers.map((number) => `${number} = 0`).join(" AND ")}`,
				rows.map((row) => valuesOf(row, key)),
			);
		},
		// The one writer has locked the database.
		lock: async () => false,
		lockTable: async () => undefined,
		lockSequences: () => readNewest({ all, ...SQLITE }),
		// The newest entries have them.
		saveSequences: async () => undefined,
		find: async (conditions, order) => chooseIndex(statements, conditions, order),
		isSpread: async () => false,
		settled: async () => undefined,
		writeWords: async (events) => writeWords(statements, events),
		findTexts: async (query, tests) => findTexts(statements, query, tests),
		async removeWordsOf(events) {
			each(
				"DELETE FROM search_texts WHERE rowid = ?",
				events.map((sequence) => [sequence]),
			);
		},
		emptyWords: async () => void run("INSERT INTO search_texts (search_texts) VALUES ('delete-all')", []),
	};
}

type Run = (sql: string, values: readonly (Value | undefined)[]) => Row[];

/**
 * Lets a statement test a column for one id in place of a list of one. For that it reads an index in the order of sequences.
 */
function ofOne(sql: string, values: readonly Value[]): [sql: string, values: readonly Value[]] {
	if (!values.every((value) => !isList(value) || value.length === 1) || !values.some(isList)) return [sql, values];
	return [sql.replaceAll(IN_LIST, "= ?"), values.map((value) => (isList(value) ? (value[0] ?? null) : value))];
}

function isList(value: Value): value is readonly string[] | readonly bigint[] {
	return Array.isArray(value);
}

/** Returns the assignment that adds to a column of table `t`. */
function added(column: string): string {
	const sum = `t.${column} + excluded.${column}`;
	// A sum of integers beyond 64 bits is a floating-point number.
	return `${column} = CASE typeof(${sum}) WHEN 'integer' THEN ${sum}
		ELSE iif(excluded.${column} > 0, 9223372036854775807, -9223372036854775808) END`;
}

function valuesOf(row: Columns, columns: readonly string[]): (Value | undefined)[] {
	return columns.map((column) => row[column]);
}

function allOf(columns: readonly string[]): string {
	return columns.map((column) => `${column} = ?`).join(" AND ");
}

/** Maximum number of index entries that a list counts, or reads and sorts. */
const FEW_ENTRIES = 5_000;

/**
 * Chooses the index by which conversations are found, whose rows are tested for the other conditions: see `Session.find`.
 *
 * A list reads and sorts the entries of the index with the fewest ones if it has fewer than {@link FEW_ENTRIES}; the cost then
 * does not grow with the number of conversations. Otherwise it reads the index of its order until the page is full, which is
 * soon, because many conversations match each condition. If few match all of them, it reads that index to its end.
 */
function chooseIndex(statements: Prepares, conditions: readonly SqlCondition[], order: ListOrder | undefined): Found {
	// The index of owners has the order of updates.
	const ofOwner = order === "updated" ? conditions.find(({ isOwner }) => isOwner) : undefined;
	const [first, ...others] = conditions;
	const isOnlyOwner = first !== undefined && first === ofOwner && others.length === 0;
	const chosen = isOnlyOwner ? first : (fewestEntries(statements, conditions) ?? ofOwner);
	const of = order === undefined ? (chosen ?? conditions.find(({ index }) => index !== undefined)) : chosen;
	const tests = conditions.filter((condition) => condition !== of).map(({ test }) => test);
	if (of?.index === undefined) {
		const all = order === undefined ? "" : `INDEXED BY conversations_by_${order === "updated" ? "sequence" : order}`;
		return { from: `conversations c ${all}`, tests };
	}
	return { from: of.index.from, tests: [of.index.where, ...tests] };
}

/** Returns the condition whose index has the fewest entries; undefined if none has fewer than {@link FEW_ENTRIES}. */
function fewestEntries(statements: Prepares, conditions: readonly SqlCondition[]): SqlCondition | undefined {
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
function countEntries(statements: Prepares, { from, where }: IndexAccess, few: number): number {
	const row = statements
		.prepare(`SELECT count(*) AS count FROM (SELECT 1 FROM ${from} WHERE ${where.text} LIMIT ${few})`)
		.get(...where.parameters.map(bound));
	return integer(row?.count);
}
