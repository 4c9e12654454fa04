import { asciiLower } from "../condition.ts";
import { SCHEMA as SCHEMAS } from "../schema.ts";
import type { Session as AnySession, Change, Columns, Dialect } from "../session.ts";
import { type Table, tableOf } from "../tables.ts";
import type { Row } from "../values.ts";
import { decoded } from "./rows.ts";
import { Bytes, insertEvents, insertInto, json, orReplace, rowsFor, rowsIn, storedForm } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";
import { saturatingSum } from "./usage-report.ts";

const SCHEMA = SCHEMAS.postgres;

const DIALECT: Dialect = {
	engine: "postgres",
	schema: SCHEMA,
	headKey: "conversation_id",
	headReference: "conversation_id",
	entries: {
		updates: {
			from: `${SCHEMA}updates e`,
			besideDamage: `${SCHEMA}updates e`,
			conversationId: "e.conversation_id",
		},
		events: { from: `${SCHEMA}events e`, besideDamage: `${SCHEMA}events e`, conversationId: "e.conversation_id" },
	},
	isCurrent: "u.conversation_id = h.conversation_id AND u.sequence = h.sequence",
	keyWithoutHead: "a.conversation_id",
	isOfActivity: "e.conversation_id = a.conversation_id",
	title: `(SELECT t.title FROM ${SCHEMA}titles t WHERE t.conversation_id = c.conversation_id)`,
	usageId: "id",
	usageReferences: ["usage_ledger", "usage_days"],
	sum: saturatingSum,
	forUpdate: "FOR UPDATE",
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
			Object.fromEntries(Object.entries(row).map(([name, value]) => [name, storedForm(columns[name], value ?? null)])),
		async write(table, changes) {
			const rows = changes.filter(isChanged).map(({ after }) => after);
			if (rows.length > 0) await run(replace(table, rows));
		},
		async insert(name, rows) {
			const table = tableOf("postgres", name);
			const bytes = new Bytes();
			const values = [rowsFor(table, rows, bytes)];
			const hasBytes = Object.values(table.columns).includes("bytes");
			await run({ text: insertInto(table), values: hasBytes ? [...values, bytes.all()] : values });
		},
		async insertEntries(log, rows) {
			const table = tableOf("postgres", log);
			const bytes = new Bytes();
			const values = [rowsFor(table, rows, bytes), bytes.all()];
			const owners = log === "updates" ? "heads" : "activities";
			const owner = `(SELECT o.owner FROM ${SCHEMA}${owners} o WHERE o.conversation_id = r.conversation_id)`;
			const valueFor = (column: string) => (column === "owner" ? owner : undefined);
			const text =
				log === "updates"
					? insertInto(table, { valueFor })
					: `WITH ${insertEvents({ valueFor })} SELECT count(*) FROM new_events`;
			await run({ text, values });
		},
		async remove(table, keys) {
			if (keys.length > 0) await run(remove(table, keys, ""));
		},
		async add(table, rows) {
			if (rows.length === 0) return;
			const numbers = Object.keys(table.columns).filter((name) => !table.key.includes(name));
			const sums = numbers.map(
				(name) => `
					${name} = least(greatest(t.${name}::numeric + excluded.${name}, -9223372036854775808), 9223372036854775807)`,
			);
			const sum = `ON CONFLICT (${table.key.join()}) DO UPDATE SET ${sums.join()}`;
			await run({ name: `add_${table.name}`, text: `${insertInto(table)} ${sum}`, values: [json(rows)] });
			await run(remove(table, rows, numbers.map((name) => `AND t.${name} = 0`).join(" ")));
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
			if (kept.length > 0) await run(replace(TITLES, kept));
		},
		async removeTitles() {
			await run({ text: `DELETE FROM ${SCHEMA}titles` });
		},
	};
}

const TITLES = tableOf("postgres", "titles");

function isChanged({ before, after }: Change): boolean {
	return before === undefined || Object.keys(after).some((name) => before[name] !== after[name]);
}

/** @param rows in their stored form */
function replace(table: Table, rows: readonly Columns[]): Query {
	return { name: `replace_${table.name}`, text: `${insertInto(table)} ${orReplace(table)}`, values: [json(rows)] };
}

function remove(table: Table, keys: readonly Columns[], condition: string): Query {
	const isSame = table.key.map((name) => `t.${name} = r.${name}`).join(" AND ");
	return {
		name: `remove_${table.name}${condition === "" ? "" : "_zero"}`,
		text: `DELETE FROM ${SCHEMA}${table.name} t USING ${rowsIn(table, "$1")} WHERE ${isSame} ${condition}`,
		values: [json(keys)],
	};
}
