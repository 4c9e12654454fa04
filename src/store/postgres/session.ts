import { asciiLower } from "../condition.ts";
import type { Session as AnySession, Change, Columns, ColumnType, Dialect, Table } from "../session.ts";
import type { Row } from "../values.ts";
import { decoded } from "./rows.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";
import { json } from "./written-rows.ts";

const SCHEMA = "conversation_updates.";

const DIALECT: Dialect = {
	schema: SCHEMA,
	headKey: "conversation_id",
	headType: "id",
	headReference: "conversation_id",
	entries: {
		updates: {
			from: `${SCHEMA}updates e`,
			besideDamage: `${SCHEMA}updates e`,
			conversationId: "e.conversation_id",
		},
		events: { from: `${SCHEMA}events e`, besideDamage: `${SCHEMA}events e`, conversationId: "e.conversation_id" },
	},
	keyWithoutHead: "a.conversation_id",
	isOfActivity: "e.conversation_id = a.conversation_id",
	title: `(SELECT t.title FROM ${SCHEMA}titles t WHERE t.conversation_id = c.conversation_id)`,
	forUpdate: "FOR UPDATE",
};

const TYPES: Readonly<Record<ColumnType, string>> = {
	id: "uuid",
	integer: "bigint",
	real: "double precision",
	boolean: "boolean",
	text: "text",
	key: "text",
};

/** Statements with question marks, by these. */
const numbered = new Map<string, string>();

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

/** Returns the session of a transaction. */
export function postgresSession(transaction: Session): AnySession {
	const run = async (query: Query): Promise<Row[]> => (await transaction.query(query))[0] ?? [];
	return {
		dialect: DIALECT,
		all: (text, ...values) => run({ text: withNumbers(text), values }),
		isIn: (column) => `${column} = ANY (?::uuid[])`,
		readText: decoded,
		stored: ({ columns }, row) =>
			Object.fromEntries(Object.entries(row).map(([name, value]) => [name, storedForm(columns[name], value)])),
		async write(table, changes) {
			const rows = changes.filter(isChanged).map(({ after }) => after);
			if (rows.length > 0) await run(upsert(table, rows, "excluded"));
		},
		async remove(table, keys) {
			if (keys.length > 0) await run(remove(table, keys, ""));
		},
		async add(table, rows) {
			if (rows.length === 0) return;
			await run(upsert(table, rows, "sum"));
			await run(remove(table, rows, "AND t.number = 0"));
		},
		async writeTitles(titles) {
			const changed = titles.flatMap(({ key, before, after }) => {
				const title = after === undefined ? undefined : encodeText(asciiLower(after));
				return title === before ? [] : [{ conversation_id: key, title: title ?? null }];
			});
			const [gone, kept] = [
				changed.filter(({ title }) => title === null),
				changed.filter(({ title }) => title !== null),
			];
			if (gone.length > 0) await run(remove(TITLES, gone, ""));
			if (kept.length > 0) await run(upsert(TITLES, kept, "excluded"));
		},
		async removeTitles() {
			await run({ text: `DELETE FROM ${SCHEMA}titles` });
		},
	};
}

const TITLES: Table = { name: "titles", columns: { conversation_id: "id", title: "text" }, key: ["conversation_id"] };

function storedForm(type: ColumnType | undefined, value: Columns[string] | undefined) {
	if (typeof value !== "string") return value ?? null;
	if (type === "key") return encodeKey(value);
	return type === "text" ? encodeText(value) : value;
}

function isChanged({ before, after }: Change): boolean {
	return before === undefined || Object.keys(after).some((name) => before[name] !== after[name]);
}

/** @param replaced whether the columns of an existing row are replaced, or its `number` is added to */
function upsert(table: Table, rows: readonly Columns[], replaced: "excluded" | "sum"): Query {
	const names = Object.keys(table.columns).join();
	const others = Object.keys(table.columns).filter((name) => !table.key.includes(name));
	const assignments = others.map((name) => `${name} = ${replaced === "sum" ? `t.${name} + ` : ""}excluded.${name}`);
	return {
		name: `${replaced}_${table.name}`,
		text: `INSERT INTO ${SCHEMA}${table.name} AS t (${names}) SELECT ${names} FROM ${rowsOf(table)}
			ON CONFLICT (${table.key.join()}) DO UPDATE SET ${assignments.join()}`,
		values: [json(rows)],
	};
}

function remove(table: Table, keys: readonly Columns[], condition: string): Query {
	const isSame = table.key.map((name) => `t.${name} = r.${name}`).join(" AND ");
	return {
		name: `remove_${table.name}${condition === "" ? "" : "_zero"}`,
		text: `DELETE FROM ${SCHEMA}${table.name} t USING ${rowsOf(table)} WHERE ${isSame} ${condition}`,
		values: [json(keys)],
	};
}

function rowsOf({ columns }: Table): string {
	const types = Object.entries(columns).map(([name, type]) => `${name} ${TYPES[type]}`);
	return `json_to_recordset($1::json) AS r (${types.join()})`;
}
