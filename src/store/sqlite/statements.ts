import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { BLOCK_BITS } from "../condition.ts";
import { type TableName, tableOf } from "../tables.ts";

/** Maximum number of cached statements. Lists need one for each combination of conditions. */
const MAX_STATEMENTS = 200;

/** Cache of prepared statements by their SQL text. */
export class Statements {
	readonly #database: DatabaseSync;
	readonly #prepared = new Map<string, StatementSync>();

	constructor(database: DatabaseSync) {
		this.#database = database;
	}

	prepare(sql: string): StatementSync {
		let statement = this.#prepared.get(sql);
		if (statement === undefined) {
			if (this.#prepared.size >= MAX_STATEMENTS) this.#prepared.clear();
			statement = this.#database.prepare(sql);
			this.#prepared.set(sql, statement);
		}
		return statement;
	}

	/** Prepares a statement whose text is not used again. */
	once(sql: string): StatementSync {
		return this.#database.prepare(sql);
	}
}

/** A row to insert. A column that it lacks is null. */
type Columns = Readonly<Record<string, SQLInputValue | boolean | List | undefined>>;
type List = readonly string[] | readonly bigint[];

const inserts = new Map<string, { readonly names: readonly string[]; readonly sql: string }>();

/**
 * Inserts a row into a table.
 *
 * @param ifExists as for `Session.insert`
 */
export function insertInto(statements: Statements, table: TableName, row: Columns, ifExists = ""): void {
	const { names, sql } = inserts.getOrInsertComputed(`${table} ${ifExists}`, () => {
		const { columns, key } = tableOf("sqlite", table);
		const all = Object.keys(columns);
		const insert = `INSERT INTO ${table} AS t (${all.join()}) VALUES (${all.map(() => "?").join()})`;
		return {
			names: all,
			sql: ifExists === "" ? insert : `${insert} ON CONFLICT (${key.join()}) DO ${ifExists}`,
		};
	});
	statements.prepare(sql).run(...names.map((name) => bound(row[name])));
}

/** Returns a value as the driver takes it. A list becomes JSON. */
export function bound(value: Columns[string]): SQLInputValue {
	if (typeof value === "boolean") return BigInt(value);
	if (!isList(value)) return value ?? null;
	return `[${value.map((one) => (typeof one === "bigint" ? one : JSON.stringify(one))).join()}]`;
}

function isList(value: Columns[string]): value is List {
	return Array.isArray(value);
}

/** Widens the ranges of time of the blocks of new events. */
export function widenEventTimes(
	statements: Statements,
	events: Iterable<{ readonly sequence: bigint; readonly happenedAt: bigint }>,
): void {
	const blocks = new Map<bigint, { first: bigint; last: bigint }>();
	for (const { sequence, happenedAt } of events) {
		const times = blocks.getOrInsert(sequence >> BigInt(BLOCK_BITS), { first: happenedAt, last: happenedAt });
		if (happenedAt < times.first) times.first = happenedAt;
		if (happenedAt > times.last) times.last = happenedAt;
	}
	for (const [block, { first, last }] of blocks)
		statements
			.prepare(`
				INSERT INTO event_times (block, first_at, last_at) VALUES (?, ?, ?)
				ON CONFLICT DO UPDATE SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
				WHERE excluded.first_at < first_at OR excluded.last_at > last_at
			`)
			.run(block, first, last);
}
