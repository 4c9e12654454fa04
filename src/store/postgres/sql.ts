import { SCHEMA as SCHEMAS } from "../schema.ts";
import type { Columns, Sql as Fragment, Value } from "../session.ts";
import type { Table } from "../tables.ts";
import { storedValue } from "./stored-text.ts";
import type { Query } from "./transaction.ts";

/** Builds a statement from pieces, and collects the values of its parameters. */
export class Sql {
	readonly #values: unknown[] = [];

	/** Adds a value and returns its placeholder. */
	value(value: Value | undefined): string {
		this.#values.push(storedValue(value));
		return `$${this.#values.length}`;
	}

	/** Adds the values of a fragment. Returns its text with placeholders in place of question marks. */
	fragment({ text, parameters }: Fragment): string {
		let at = 0;
		return text.replaceAll("?", () => this.value(parameters[at++]));
	}

	/** Returns the query of a statement that contains the placeholders. */
	query(text: string): Query {
		return { text, values: this.#values };
	}
}

const SCHEMA = SCHEMAS.postgres;

/**
 * Numbers of rows of the statements that write several, largest first. Each has a name, so that connections keep it prepared.
 * Citus sends each server its rows if they are values; the result of a SELECT it would store as files on all servers first.
 */
const SIZES = [64, 16, 4, 1];

/** Names of the statements that connections keep prepared, by their texts. */
const names = new Map<string, string>();

/** Returns a query that each connection prepares once. There must be few texts. */
export function prepared(query: Query): Query {
	return { ...query, name: names.getOrInsertComputed(query.text, () => `statement_${names.size}`) };
}

/** Returns statements for all rows. `textFor` returns that for a number of rows, with the placeholders of their values. */
function inParts(
	rows: readonly Columns[],
	columns: readonly string[],
	textFor: (rows: readonly (readonly string[])[]) => string,
): Query[] {
	const queries: Query[] = [];
	for (let first = 0; first < rows.length; ) {
		const size = SIZES.find((one) => one <= rows.length - first) ?? 1;
		const sql = new Sql();
		const placeholders = rows
			.slice(first, first + size)
			.map((row) => columns.map((name) => sql.value(row[name] ?? null)));
		queries.push(prepared(sql.query(textFor(placeholders))));
		first += size;
	}
	return queries;
}

/**
 * Returns the queries that insert rows into a table, whose alias is `t`.
 *
 * @param ifExists what follows the rows: see {@link onConflict}
 */
export function insertRows(table: Table, rows: readonly Columns[], ifExists = ""): Query[] {
	const columns = Object.keys(table.columns);
	return inParts(rows, columns, (placeholders) => {
		const values = placeholders.map((own) => `(${own.join()})`);
		return `INSERT INTO ${SCHEMA}${table.name} AS t (${columns.join()}) VALUES ${values.join()} ${ifExists}`;
	});
}

/**
 * Returns the queries that remove the rows with some keys.
 *
 * @param condition further SQL for which of these rows
 */
export function removeRows(table: Table, keys: readonly Columns[], condition = ""): Query[] {
	return inParts(keys, table.key, (placeholders) => {
		const same = placeholders.map((own) => `(${table.key.map((name, n) => `${name} = ${own[n]}`).join(" AND ")})`);
		return `DELETE FROM ${SCHEMA}${table.name} WHERE (${same.join(" OR ")}) ${condition}`;
	});
}

/** Returns what follows an INSERT whose rows replace existing ones. */
export function orReplace(table: Table): string {
	const replaced = Object.keys(table.columns).filter((name) => !table.key.includes(name));
	const assignments = replaced.map((name) => `${name} = excluded.${name}`);
	return onConflict(table, assignments.length === 0 ? "NOTHING" : `UPDATE SET ${assignments.join()}`);
}

/** Returns what follows an INSERT, with what is done for a row that exists: see `Session.insert`. */
export function onConflict({ key }: Table, ifExists: string): string {
	return `ON CONFLICT (${key.join()}) DO ${ifExists}`;
}
