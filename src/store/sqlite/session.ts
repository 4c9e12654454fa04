import type { Columns, Dialect, Session, TitleChange, Value } from "../session.ts";
import { type Table, tableOf } from "../tables.ts";
import { bigint, type Row, text } from "../values.ts";
import { bound, insertInto as insertRow, widenEventTimes } from "./entries.ts";
import type { Statements } from "./statements.ts";
import { saturatingSum } from "./usage-report.ts";

const DIALECT: Dialect = {
	engine: "sqlite",
	schema: "",
	headKey: "id",
	headReference: "conversation",
	entries: {
		updates: {
			from: "updates e CROSS JOIN heads h ON h.id = e.conversation",
			besideDamage: "updates e INDEXED BY updates_by_conversation CROSS JOIN heads h ON h.id = e.conversation",
			conversationId: "h.conversation_id",
		},
		events: {
			from: "events e CROSS JOIN activities a ON a.id = e.activity",
			besideDamage: "events e INDEXED BY events_by_activity CROSS JOIN activities a ON a.id = e.activity",
			conversationId: "a.conversation_id",
		},
	},
	isCurrent: "u.sequence = h.sequence",
	// No head has a negative id.
	keyWithoutHead: "-a.id",
	isOfActivity: "e.activity = a.id",
	title: "c.title",
	usageId: "conversation_id",
	// The row ids stay.
	usageReferences: [],
	sum: saturatingSum,
	forUpdate: "",
};

/** Returns the session of a connection, in whose thread it runs. Statements run at once. */
export function sqliteSession(statements: Statements): Session {
	const run: Run = (sql, values) => statements.prepare(sql).all(...values.map(bound));
	const each = (sql: string, rows: readonly (readonly (Value | undefined)[])[]) => {
		const statement = statements.prepare(sql);
		for (const values of rows) statement.run(...values.map(bound));
	};
	return {
		dialect: DIALECT,
		all: async (sql, ...values) => run(sql, values),
		isIn: (column) => `${column} IN (SELECT value FROM json_each(?))`,
		readText: text,
		stored: (_, row) =>
			Object.fromEntries(
				Object.entries(row).map(([name, value]) => [name, typeof value === "boolean" ? BigInt(value) : value]),
			),
		async write(table, changes) {
			for (const { before, after } of changes)
				if (before === undefined) run(insertInto(table.name, Object.keys(after)), Object.values(after));
				else updateRow(table, before, after, run);
		},
		async insert(table, rows) {
			for (const row of rows) insertRow(statements, table, row);
		},
		async insertEntries(log, rows) {
			const { column = "", table: conversations } = tableOf("sqlite", log).reference ?? {};
			for (const row of rows) {
				const find = statements.prepare(`SELECT id, owner FROM ${conversations} WHERE conversation_id = ?`);
				const { id, owner } = find.get(bound(row.conversation_id)) ?? {};
				insertRow(statements, log, { ...row, [column]: bigint(id) });
				if (typeof owner === "string") insertRow(statements, `${log}_of_owners`, { owner, sequence: row.sequence });
			}
			if (log === "events")
				widenEventTimes(
					statements,
					rows.map((row) => ({ sequence: bigint(row.sequence), happenedAt: bigint(row.happened_at) })),
				);
		},
		async remove({ name, key }, keys) {
			each(
				`DELETE FROM ${name} WHERE ${allOf(key)}`,
				keys.map((row) => valuesOf(row, key)),
			);
		},
		async add(table, rows) {
			const { name, key } = table;
			const numbers = Object.keys(table.columns).filter((column) => !key.includes(column));
			each(
				`${insertInto(`${name} AS t`, Object.keys(table.columns))} ON CONFLICT DO UPDATE SET ${numbers.map(added).join()}`,
				rows.map((row) => valuesOf(row, Object.keys(table.columns))),
			);
			each(
				`DELETE FROM ${name} WHERE ${allOf(key)} AND ${numbers.map((number) => `${number} = 0`).join(" AND ")}`,
				rows.map((row) => valuesOf(row, key)),
			);
		},
		async writeTitles(changes) {
			for (const change of changes) if (change.before !== change.after) writeTitle(change, run);
		},
		async removeTitles() {
			run("INSERT INTO titles (titles) VALUES ('delete-all')", []);
		},
	};
}

type Run = (sql: string, values: readonly (Value | undefined)[]) => Row[];

/** Returns the assignment that adds to a column of table `t`. */
function added(column: string): string {
	const sum = `t.${column} + excluded.${column}`;
	// A sum of integers beyond 64 bits is a floating-point number.
	return `${column} = CASE typeof(${sum}) WHEN 'integer' THEN ${sum}
		ELSE iif(excluded.${column} > 0, 9223372036854775807, -9223372036854775808) END`;
}

function insertInto(name: string, names: readonly string[]): string {
	return `INSERT INTO ${name} (${names.join()}) VALUES (${names.map(() => "?").join()})`;
}

/**
 * Changes the columns of a row that differ, in one statement, which names no other column: SQLite writes the index of each
 * column that a statement names.
 */
function updateRow({ name, key }: Table, before: Row, after: Columns, run: Run): void {
	const changed = Object.keys(after).filter((column) => before[column] !== after[column]);
	if (changed.length === 0) return;
	run(
		`UPDATE ${name} SET ${changed.map((column) => `${column} = ?`).join()} WHERE ${allOf(key)}`,
		[...changed, ...key].map((column) => after[column] ?? null),
	);
}

function valuesOf(row: Columns, columns: readonly string[]): Value[] {
	return columns.map((column) => row[column] ?? null);
}

function writeTitle({ key, before, after }: TitleChange, run: Run): void {
	if (before !== undefined) run("DELETE FROM titles WHERE rowid = ?", [key]);
	if (after !== undefined) run("INSERT INTO titles (rowid, title) VALUES (?, ?)", [key, after]);
	run("UPDATE conversations SET title = ? WHERE id = ?", [after ?? null, key]);
}

function allOf(columns: readonly string[]): string {
	return columns.map((column) => `${column} = ?`).join(" AND ");
}
