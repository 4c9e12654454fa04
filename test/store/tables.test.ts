import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { createSchema } from "../../src/store/sqlite/schema.ts";
import { allTables, type Engine } from "../../src/store/tables.ts";
import { TABLES } from "./exported-tables.ts";

/** Columns that name the conversation of a row. */
const CONVERSATION = /\bconversation_id\b/;

test("no unique key of PostgreSQL's tables by conversation lacks the conversation", () => {
	const uniqueKeys = allTables("postgres")
		.filter(({ spread }) => spread === "conversation")
		.flatMap(({ name, key, indexes }) => [
			`${name} (${key.join(", ")})`,
			...Object.values(indexes).flatMap((on) => (typeof on === "string" ? [] : [`${name} ${on.unique}`])),
		]);
	expect(uniqueKeys.length).toBeGreaterThan(10);
	expect(uniqueKeys.filter((key) => !CONVERSATION.test(key.slice(key.indexOf("("))))).toEqual([]);
	expect(uniqueKeys).toEqual(
		expect.arrayContaining([
			"updates (conversation_id, sequence)",
			"events (conversation_id, sequence)",
			"events (conversation_id, event_id)",
			"search_texts (conversation_id, sequence)",
		]),
	);
});

test("SQLite has the described columns, in their order, and which of them may be null", () => {
	using database = new DatabaseSync(":memory:");
	createSchema(database);
	for (const { name, columns, nullable, key } of allTables("sqlite")) {
		const found = database
			.prepare(`PRAGMA table_info(${name})`)
			.all()
			.map((column) => [column.name, column.notnull === 0 && column.pk === 0]);
		const described = Object.keys(columns).map((column) => [column, nullable.has(column) && !key.includes(column)]);
		expect([name, found]).toEqual([name, described]);
	}
});

test.each<Engine>(["sqlite", "postgres"])("each table of %s is exported, or it is known why not", (engine) => {
	const described = allTables(engine).map(({ name }): string => name);
	// SQLite's index of words and PostgreSQL's versions of the schema are no described tables.
	const others = ["search_texts", "schema_versions"];
	expect(
		Object.keys(TABLES[engine])
			.filter((name) => !others.includes(name))
			.sort(),
	).toEqual(described.filter((name) => !others.includes(name)).sort());
});
