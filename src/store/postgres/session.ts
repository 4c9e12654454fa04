import { LRUCache } from "lru-cache";
import { SCHEMA as SCHEMAS } from "../schema.ts";
import type { Session as AnySession, Change, Columns, Dialect, Value } from "../session.ts";
import { type Table, tableOf } from "../tables.ts";
import { bigint, isConversationId, type Row } from "../values.ts";
import { lockSettled } from "./citus.ts";
import { settledSequences } from "./log.ts";
import { findTexts, writeWords } from "./text-index.ts";
import type { Query, Session } from "./transaction.ts";

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
	placeOf: "strpos",
};

/** What tests whether a value is in a list of ids, which is one parameter. */
const IN_LIST = "= ANY (?::uuid[])";

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
function storedValue(value: Value): unknown {
	if (typeof value === "string") return encodeText(value);
	if (typeof value !== "object" || value === null) return value;
	if (value instanceof Uint8Array) return value;
	if (!("rows" in value)) return value.filter((one) => typeof one === "bigint" || isConversationId(one));
	const texts = value.rows.map((row) => row.map((one) => (typeof one === "bigint" ? String(one) : encodeText(one))));
	return JSON.stringify(texts);
}

/** Returns a row with its texts in place of their stored forms. */
function readRow(row: Row): Row {
	let read: Record<string, unknown> | undefined;
	for (const name in row) {
		const value = row[name];
		if (typeof value !== "string" || !value.includes(ESCAPE)) continue;
		read ??= { ...row };
		read[name] = decodeText(value);
	}
	return read ?? row;
}

/**
 * Numbers of rows of the statements that write several, largest first. Each has a name, so that connections keep it prepared.
 * Citus sends each server its rows if they are values; the result of a SELECT it would store as files on all servers first.
 */
const SIZES = [64, 16, 4, 1];

/** Names of the statements that connections keep prepared, by their texts. */
const names = new Map<string, string>();

/** Returns a query that each connection prepares once. There must be few texts. */
function prepared(query: Query): Query {
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
		const part = rows.slice(first, first + size);
		const placeholders = part.map((_, row) => columns.map((_, column) => `$${row * columns.length + column + 1}`));
		const values = part.flatMap((row) => columns.map((name) => storedValue(row[name] ?? null)));
		queries.push(prepared({ text: textFor(placeholders), values }));
		first += size;
	}
	return queries;
}

/**
 * Returns the queries that insert rows into a table, whose alias is `t`.
 *
 * @param ifExists what follows the rows: see {@link onConflict}
 */
function insertRows(table: Table, rows: readonly Columns[], ifExists = ""): Query[] {
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
function removeRows(table: Table, keys: readonly Columns[], condition = ""): Query[] {
	return inParts(keys, table.key, (placeholders) => {
		const same = placeholders.map((own) => `(${table.key.map((name, n) => `${name} = ${own[n]}`).join(" AND ")})`);
		return `DELETE FROM ${SCHEMA}${table.name} WHERE (${same.join(" OR ")}) ${condition}`;
	});
}

/** Returns what follows an INSERT whose rows replace existing ones. */
function orReplace(table: Table): string {
	const replaced = Object.keys(table.columns).filter((name) => !table.key.includes(name));
	const assignments = replaced.map((name) => `${name} = excluded.${name}`);
	return onConflict(table, assignments.length === 0 ? "NOTHING" : `UPDATE SET ${assignments.join()}`);
}

/** Returns what follows an INSERT, with what is done for a row that exists: see `Session.insert`. */
function onConflict({ key }: Table, ifExists: string): string {
	return `ON CONFLICT (${key.join()}) DO ${ifExists}`;
}

/** Statements with question marks, by these. Lists have one for each combination of conditions. */
const numbered = new LRUCache<string, string>({ max: 1_000 });

/** Returns a statement with $1, $2 … in place of its question marks. No statement has one in a text. */
function withNumbers(text: string): string {
	let found = numbered.get(text);
	if (found === undefined) {
		let count = 0;
		found = text.replaceAll("?", () => `$${++count}`);
		numbered.set(text, found);
	}
	return found;
}

/**
 * Returns the session of a transaction.
 *
 * @param prepares whether connections keep its statements prepared: there are few, and their plans do not depend on the values
 */
export function postgresSession(transaction: Session, prepares = false): AnySession {
	const run = async (query: Query): Promise<Row[]> => ((await transaction.query(query))[0] ?? []).map(readRow);
	const session: AnySession = {
		dialect: DIALECT,
		isIn: (column) => `${column} ${IN_LIST}`,
		isAmong: (column) => `${column} = ANY (?::bigint[])`,
		all: (statement, ...values) => {
			// Of a list Citus asks all servers for the rows of joined tables, of one id only the server that has it.
			const lists = values.filter(isIds);
			const isOfOne = lists.length > 0 && lists.every(([id, ...others]) => others.length === 0 && isUuid(id));
			const text = isOfOne ? statement.replaceAll(IN_LIST, "= ?::uuid") : statement;
			const own = isOfOne ? values.map((value) => (isIds(value) ? (value[0] ?? null) : value)) : values;
			const query = { text: withNumbers(text), values: own.map(storedValue) };
			return run(prepares ? prepared(query) : query);
		},
		async write(name, changes) {
			const table = tableOf(name);
			const rows = changes.filter(isChanged).map(({ after }) => after);
			await transaction.query(...insertRows(table, rows, orReplace(table)));
		},
		async insert(name, rows, ifExists) {
			const table = tableOf(name);
			await transaction.query(...insertRows(table, rows, ifExists === undefined ? "" : onConflict(table, ifExists)));
		},
		async remove(name, keys) {
			await transaction.query(...removeRows(tableOf(name), keys));
		},
		async add(name, rows) {
			const table = tableOf(name);
			const numbers = Object.keys(table.columns).filter((column) => !table.key.includes(column));
			const sums = numbers.map(
				(column) => `
					${column} = least(greatest(t.${column}::numeric + excluded.${column}, -9223372036854775808), 9223372036854775807)`,
			);
			await transaction.query(
				...insertRows(table, rows, onConflict(table, `UPDATE SET ${sums.join()}`)),
				...removeRows(table, rows, numbers.map((column) => `AND ${column} = 0`).join(" ")),
			);
		},
		lock: (conversationIds) =>
			conversationIds.length === 0 ? Promise.resolve(false) : lockSettled(transaction, conversationIds),
		async lockTable(table) {
			await run({ text: `LOCK TABLE ${SCHEMA}${table} IN SHARE ROW EXCLUSIVE MODE` });
		},
		async lockSequences() {
			const [row] = await run({
				name: "lock_sequences",
				text: `SELECT newest_update, newest_event FROM ${SCHEMA}state FOR UPDATE`,
			});
			return { updates: bigint(row?.newest_update), events: bigint(row?.newest_event) };
		},
		async saveSequences({ updates, events }) {
			await run({
				name: "save_sequences",
				text: `UPDATE ${SCHEMA}state SET newest_update = $1, newest_event = $2`,
				values: [updates, events],
			});
		},
		find: async (conditions) => ({
			from: `${SCHEMA}conversations c`,
			tests: conditions.map(({ test }) => test),
		}),
		isSpread: () => transaction.spread.isDistributed(transaction),
		settled: (conversationId) => settledSequences(transaction, isUuid(conversationId) ? [conversationId] : undefined),
		writeWords: (events) => writeWords(session, events),
		findTexts: (query, tests) => findTexts(session, query, tests),
		async removeWordsOf(events) {
			await run({ text: `DELETE FROM ${SCHEMA}search_texts WHERE sequence = ANY ($1::bigint[])`, values: [events] });
		},
		emptyWords: async () => undefined,
	};
	return session;
}

function isIds(value: Value): value is readonly string[] {
	return Array.isArray(value) && typeof value[0] !== "bigint";
}

function isUuid(id: string | undefined): id is string {
	return id !== undefined && isConversationId(id);
}

function isChanged({ before, after }: Change): boolean {
	return before === undefined || Object.keys(after).some((name) => before[name] !== after[name]);
}
