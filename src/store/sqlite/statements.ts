import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import type { Columns, Value } from "../session.ts";
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
		const { columns } = tableOf("sqlite", table);
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
