import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import type { LogTable } from "../sequence-log.ts";
import type { Columns, Dialect, Terms, Value } from "../session.ts";
import { type TableName, tableOf } from "../tables.ts";

/** SQL for the newest sequence of a log: that of its newest entry, unless later ones were removed. */
function newestOf(log: LogTable, column: "newest_update" | "newest_event"): string {
	return `(SELECT max(${column}, coalesce((SELECT max(sequence) FROM ${log}), 0)) FROM state)`;
}

const DIALECT: Dialect = {
	engine: "sqlite",
	schema: "",
	newest: { updates: newestOf("updates", "newest_update"), events: newestOf("events", "newest_event") },
	sum: saturatingSum,
	least: "min",
	greatest: "max",
	forUpdate: "",
	join: "CROSS JOIN",
	lookUp: (table, test) => `CROSS JOIN ${table} u ON ${test}`,
	rowsOf: (columns) =>
		`SELECT ${Object.keys(columns)
			.map((name, n) => `value ->> ${n} AS ${name}`)
			.join()} FROM json_each(?)`,
	idOf: (text) => text,
	isOneOf: (column, query) => `${column} IN (${query})`,
	placeOf: "instr",
};

/**
 * Returns the sum of a column, as an integer of 64 bits that ends at its limits, where `sum` fails. The upper and the lower 32
 * bits are summed up apart, so that neither sum can overflow.
 */
function saturatingSum(column: string): string {
	const lower = `sum(${column} & 4294967295)`;
	const upper = `(sum(${column} >> 32) + (${lower} >> 32))`;
	return `
		CASE WHEN ${upper} > 2147483647 THEN 9223372036854775807 WHEN ${upper} < -2147483648 THEN -9223372036854775808
			ELSE (${upper} << 32) | (${lower} & 4294967295) END
	`;
}

/** What tests whether a value is in a list, which is one parameter. */
export const IN_LIST = "IN (SELECT value FROM json_each(?))";

/** What statements for SQLite consist of. */
export const SQLITE: Terms = {
	dialect: DIALECT,
	isIn: (column) => `${column} ${IN_LIST}`,
	isAmong: (column) => `${column} ${IN_LIST}`,
};

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

	/** @throws Error unless a transaction is open: SQLite itself ends one when the disk is full, say */
	requireTransaction(): void {
		if (!this.#database.isTransaction) throw new Error("the transaction is over");
	}
}

/** What prepares statements. */
export type Prepares = Pick<Statements, "prepare">;

const inserts = new Map<string, { readonly names: readonly string[]; readonly sql: string }>();

/**
 * Inserts a row into a table.
 *
 * @param ifExists as for `Session.insert`
 */
export function insertInto(statements: Prepares, table: TableName, row: Columns, ifExists = ""): void {
	const { names, sql } = inserts.getOrInsertComputed(`${table} ${ifExists}`, () => {
		const { columns } = tableOf(table);
		const all = Object.keys(columns);
		const insert = `INSERT INTO ${table} AS t (${all.join()}) VALUES (${all.map(() => "?").join()})`;
		return {
			names: all,
			sql: ifExists === "" ? insert : `${insert} ON CONFLICT DO ${ifExists}`,
		};
	});
	statements.prepare(sql).run(...names.map((name) => bound(row[name])));
}

/** Returns a value as the driver takes it. Lists and rows become JSON. */
export function bound(value: Value | undefined): SQLInputValue {
	if (typeof value === "boolean") return BigInt(value);
	if (typeof value !== "object" || value === null) return value ?? null;
	if (value instanceof Uint8Array) return value;
	return "rows" in value ? `[${value.rows.map(jsonOf).join()}]` : jsonOf(value);
}

function jsonOf(values: readonly (string | bigint)[]): string {
	return `[${values.map((one) => (typeof one === "bigint" ? one : JSON.stringify(one))).join()}]`;
}
