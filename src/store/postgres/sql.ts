import { BLOCK_BITS } from "../condition.ts";
import { SCHEMA as SCHEMAS, SQL_TYPES } from "../schema.ts";
import type { Columns, Sql as Fragment, Value } from "../session.ts";
import { type ColumnType, type Table, tableOf } from "../tables.ts";
import { bigint } from "../values.ts";
import { encodeKey, encodeText } from "./rows.ts";
import type { Query } from "./transaction.ts";

/** Builds a statement from pieces, and collects the values of its parameters. */
export class Sql {
	readonly #values: unknown[] = [];

	/** Adds a value and returns its placeholder. */
	value(value: unknown): string {
		this.#values.push(value);
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
export const EVENTS = tableOf("postgres", "events");

/** Where a statement has its rows from. */
export interface RowSource {
	/** The parameter with the rows as JSON. Default: $1. */
	readonly json?: string;
	/** The parameter with the byte strings of all rows. Default: $2. */
	readonly bytes?: string;
	/** Further items of the FROM clause, each with a comma behind it. */
	readonly from?: string;
	/** Returns SQL for the value of a column; undefined for that of the row `r`. */
	readonly valueFor?: (column: string) => string | undefined;
}

/** Returns SQL that inserts rows of {@link rowsFor} into a table, whose alias is `t`. */
export function insertInto(table: Table, source: RowSource = {}): string {
	const { json = "$1", bytes = "$2", from = "", valueFor = () => undefined } = source;
	const values = Object.entries(table.columns).map(
		([name, type]) =>
			valueFor(name) ??
			(type === "bytes" ? `substring(${bytes}::bytea FROM r.${name}_at FOR r.${name}_size)` : `r.${name}`),
	);
	return `INSERT INTO ${SCHEMA}${table.name} AS t (${Object.keys(table.columns).join()})
		SELECT ${values.join()} FROM ${from} ${rowsIn(table, json)}`;
}

/** Maximum number of parameters of a statement. */
const MAX_PARAMETERS = 65_535;

/**
 * Returns the queries that insert rows whose values are parameters of their own. Citus sends each server its rows. The result
 * of a SELECT, as in {@link insertInto}, it would store as files on all servers first, in ten times the time.
 *
 * @param rows in their stored form
 * @param ifExists what follows the rows: see {@link onConflict}
 */
export function insertValues(table: Table, rows: readonly Columns[], ifExists = ""): Query[] {
	const columns = Object.keys(table.columns);
	const atOnce = Math.floor(MAX_PARAMETERS / columns.length);
	const queries: Query[] = [];
	for (let first = 0; first < rows.length; first += atOnce) {
		const sql = new Sql();
		const values = rows.slice(first, first + atOnce).map((row) => {
			const own = columns.map((name) => sql.value(row[name] ?? null));
			return `(${own.join()})`;
		});
		const into = `${SCHEMA}${table.name} AS t (${columns.join()})`;
		queries.push(sql.query(`INSERT INTO ${into} VALUES ${values.join()} ${ifExists}`));
	}
	return queries;
}

/** Returns the queries that remove the rows with some keys, in their stored form: see {@link insertValues}. */
export function removeValues(table: Table, keys: readonly Columns[]): Query[] {
	const atOnce = Math.floor(MAX_PARAMETERS / table.key.length);
	const queries: Query[] = [];
	for (let first = 0; first < keys.length; first += atOnce) {
		const sql = new Sql();
		const same = keys
			.slice(first, first + atOnce)
			.map((row) => `(${table.key.map((name) => `${name} = ${sql.value(row[name] ?? null)}`).join(" AND ")})`);
		queries.push(sql.query(`DELETE FROM ${SCHEMA}${table.name} WHERE ${same.join(" OR ")}`));
	}
	return queries;
}

/** Returns the size of the uncompressed text of an event, whose row it has in no column. */
export function sizeOfEvent({ unpacked_size, text }: Columns): Value {
	return unpacked_size ?? (text instanceof Uint8Array ? text.byteLength : null);
}

/** Returns the queries that widen the times of the blocks of events: see {@link insertValues}. */
export function eventTimesQueries(events: readonly Columns[]): Query[] {
	const blocks = Map.groupBy(events, ({ sequence }) => bigint(sequence) >> BigInt(BLOCK_BITS));
	const rows = [...blocks].map(([block, of]) => {
		const times = of.map(({ happened_at }) => bigint(happened_at)).sort((a, b) => (a < b ? -1 : 1));
		return { block, first_at: times.at(0), last_at: times.at(-1) };
	});
	return insertValues(EVENT_TIMES, rows, WIDEN_TIMES);
}

const EVENT_TIMES = tableOf("postgres", "event_times");

/** What is done for a row of `event_times` that exists. */
const WIDEN_TIMES = `
	ON CONFLICT (block) DO UPDATE
	SET first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at)
	WHERE excluded.first_at < t.first_at OR excluded.last_at > t.last_at
`;

/** Returns SQL that inserts events, as parts of a WITH clause. `new_events` has the inserted ones. */
export function insertEvents(source: RowSource = {}): string {
	const { valueFor: valueOfCaller = () => undefined } = source;
	const valueFor = (column: string) =>
		column === "size" ? "coalesce(r.unpacked_size, r.text_size)" : valueOfCaller(column);
	return `
		new_events AS (${insertInto(EVENTS, { ...source, valueFor })} RETURNING sequence, happened_at), new_times AS (
			INSERT INTO conversation_updates.event_times AS t (block, first_at, last_at)
			SELECT sequence >> ${BLOCK_BITS}, min(happened_at), max(happened_at) FROM new_events GROUP BY 1 ${WIDEN_TIMES}
		)
	`;
}

/**
 * Returns what follows an INSERT whose rows replace existing ones.
 *
 * @param kept columns whose values stay
 */
export function orReplace(table: Table, kept: readonly string[] = []): string {
	const replaced = Object.keys(table.columns).filter((name) => !table.key.includes(name) && !kept.includes(name));
	const assignments = replaced.map((name) => `${name} = excluded.${name}`);
	return onConflict(table, assignments.length === 0 ? "NOTHING" : `UPDATE SET ${assignments.join()}`);
}

/** Returns what follows an INSERT, with what is done for a row that exists: see `Session.insert`. */
export function onConflict({ key }: Table, ifExists: string): string {
	return `ON CONFLICT (${key.join()}) DO ${ifExists}`;
}

/**
 * Returns the query that removes the rows `t` of a table with some keys.
 *
 * @param keys as JSON, in their stored form
 * @param condition further SQL for which of these rows; `name` tells it apart
 */
export function removeRows(table: Table, keys: string, { name = "", condition = "" } = {}): Query {
	const isSame = table.key.map((column) => `t.${column} = r.${column}`).join(" AND ");
	return {
		name: `remove_${table.name}${name}`,
		text: `DELETE FROM ${SCHEMA}${table.name} t USING ${rowsIn(table, "$1")} WHERE ${isSame} ${condition}`,
		values: [keys],
	};
}

/** Returns the item of a FROM clause with the rows that a parameter has as JSON, under the name `r`. */
function rowsIn({ columns }: Table, json: string): string {
	// A byte string is found by its place in a parameter: see `Bytes`.
	const types = Object.entries(columns).map(([name, type]) =>
		type === "bytes" ? `${name}_at int, ${name}_size int` : `${name} ${SQL_TYPES.postgres[type]}`,
	);
	return `json_to_recordset(${json}::json) AS r (${types.join()})`;
}

/**
 * Returns rows as the statements take them.
 *
 * @param bytes gets the byte strings of the rows
 */
export function rowsFor({ columns }: Table, rows: readonly Columns[], bytes: Bytes): string {
	return JSON.stringify(
		rows.map((row) => {
			const members: Record<string, Value> = {};
			for (const name in row) {
				const value = row[name];
				if (value instanceof Uint8Array) Object.assign(members, bytes.add(name, value));
				else if (value !== undefined && value !== null) members[name] = jsonValue(storedForm(columns[name], value));
			}
			return members;
		}),
	);
}

/** Returns the stored form of a row. */
export function storedRow({ columns }: Table, row: Columns): Columns {
	return Object.fromEntries(
		Object.entries(row).map(([name, value]) => [name, storedForm(columns[name], value ?? null)]),
	);
}

/** Returns the stored form of a value. */
export function storedForm(type: ColumnType | undefined, value: Value): Value {
	if (typeof value !== "string") return value;
	if (type === "key") return encodeKey(value);
	return type === "text" ? encodeText(value) : value;
}

function jsonValue(value: Value): Value {
	return typeof value === "bigint" ? value.toString() : value;
}

/** Returns rows as JSON text, in which bigints are strings. Members that are undefined are left out. */
export function json(rows: readonly object[]): string {
	// A replacer function, which is called for each member, takes five times as long.
	return JSON.stringify(rows.map(withBigintsAsStrings));
}

function withBigintsAsStrings(row: object): object {
	const texts: Record<string, unknown> = { ...row };
	for (const name in texts) if (typeof texts[name] === "bigint") texts[name] = texts[name].toString();
	return texts;
}

/** Concatenates the byte strings of rows into one parameter, from which the statement cuts them out again. */
export class Bytes {
	readonly #parts: Uint8Array[] = [];
	#size = 0;

	/** Adds a byte string. Returns the members of a row that locate it. Positions begin with 1. */
	add(name: string, bytes: Uint8Array): Record<string, number> {
		const place = { [`${name}_at`]: this.#size + 1, [`${name}_size`]: bytes.byteLength };
		this.#parts.push(bytes);
		this.#size += bytes.byteLength;
		return place;
	}

	all(): Buffer {
		return Buffer.concat(this.#parts, this.#size);
	}
}
