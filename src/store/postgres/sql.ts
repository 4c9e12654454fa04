import { SCHEMA as SCHEMAS } from "../schema.ts";
import type { Columns, Dialect, Sql as Fragment, Terms, Value } from "../session.ts";
import type { Table } from "../tables.ts";
import { isConversationId, type Row } from "../values.ts";
import type { Query } from "./transaction.ts";

const SCHEMA = SCHEMAS.postgres;
const UUID = "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$";
const CASTS = { id: "::uuid", integer: "::bigint", text: "" } as const;

const DIALECT: Dialect = {
	engine: "postgres",
	schema: SCHEMA,
	newest: {
		updates: `(SELECT newest_update FROM ${SCHEMA}state)`,
		events: `(SELECT newest_event FROM ${SCHEMA}state)`,
	},
	sum: (column) => `least(greatest(coalesce(sum(${column}), 0), -9223372036854775808), 9223372036854775807)::bigint`,
	least: "least",
	greatest: "greatest",
	forUpdate: "FOR UPDATE",
	join: "JOIN",
	// The planner does not know how few rows a segment selects, and would read the whole table. OFFSET keeps it from that.
	lookUp: (table, test) => `CROSS JOIN LATERAL (SELECT * FROM ${table} u WHERE ${test} OFFSET 0) u`,
	rowsOf: (columns) =>
		`SELECT ${Object.entries(columns)
			.map(([name, type], n) => `(value ->> ${n})${CASTS[type]} AS ${name}`)
			.join()} FROM json_array_elements(?::json)`,
	idOf: (text) => `CASE WHEN ${text} ~ '${UUID}' THEN ${text}::uuid END`,
	isOneOf: (column, query) => `${column} = ANY (ARRAY(${query}))`,
	titleContains: (contained) => ({
		text: "t.title LIKE ?",
		parameters: [`%${contained.replaceAll(/[\\%_]/g, "\\$&")}%`],
	}),
	titleIndex: () => undefined,
};

/** What tests whether a value is in a list of ids, which is one parameter. */
export const IN_LIST = "= ANY (?::uuid[])";

/** What statements for PostgreSQL consist of. */
export const POSTGRES: Terms = {
	dialect: DIALECT,
	isIn: (column) => `${column} ${IN_LIST}`,
	isAmong: (column) => `${column} = ANY (?::bigint[])`,
};

/**
 * The stored form of texts. A PostgreSQL text cannot contain U+0000, which a JSON string can: it is stored as U+0001 and
 * two marks. U+0001 and the marks themselves are escaped in the same way. So different texts stay different, and a text
 * contains another one exactly if its stored form contains the stored form of the other. A lone surrogate becomes U+FFFD,
 * as in UTF-8.
 */

const ESCAPE = "\u0001";
/** Marks for the bits 0 and 1. Two of them are the number, from 0 to 3, of an escaped character. */
const MARKS = ["\u0002", "\u0003"] as const;

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that are escaped
const ESCAPED = /[\u0000-\u0003]/g;
const IS_ESCAPED = new RegExp(ESCAPED.source);

/** Returns the stored form of a text. */
export function encodeText(text: string): string {
	if (!IS_ESCAPED.test(text)) return text.toWellFormed();
	return text.toWellFormed().replace(ESCAPED, (character) => {
		const code = character.charCodeAt(0);
		return ESCAPE + MARKS[code >> 1 === 0 ? 0 : 1] + MARKS[code % 2 === 0 ? 0 : 1];
	});
}

/** Returns the text of a stored form. */
export function decodeText(stored: string): string {
	// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that are escaped
	return stored.replace(/\u0001([\u0002\u0003])([\u0002\u0003])/g, (_, high: string, low: string) =>
		String.fromCharCode((high === MARKS[1] ? 2 : 0) + (low === MARKS[1] ? 1 : 0)),
	);
}

/** Returns a value as a statement takes it: texts in their stored form, and of lists only the ids of conversations. */
export function storedValue(value: Value | undefined): unknown {
	if (typeof value === "string") return encodeText(value);
	if (typeof value !== "object" || value === null) return value;
	if (value instanceof Uint8Array) return value;
	if (!("rows" in value)) return value.filter((one) => typeof one === "bigint" || isConversationId(one));
	const texts = value.rows.map((row) => row.map((one) => (typeof one === "bigint" ? String(one) : encodeText(one))));
	return JSON.stringify(texts);
}

/** Returns a row with its texts in place of their stored forms. */
export function readRow(row: Row): Row {
	let read: Record<string, unknown> | undefined;
	for (const name in row) {
		const value = row[name];
		if (typeof value !== "string" || !value.includes(ESCAPE)) continue;
		read ??= { ...row };
		read[name] = decodeText(value);
	}
	return read ?? row;
}

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
