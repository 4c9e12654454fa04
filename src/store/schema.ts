import { NOT_REPORTED } from "./condition.ts";
import { allTables, type ColumnType, type Engine, type Table, tableOf } from "./tables.ts";

/** The schemas of databases: the statements that create the described tables, and what both engines say of old databases. */

/** A table that databases from before release 1.0.0 have and later ones do not. */
export const PRERELEASE_TABLE = "derivations";
/** Why such a database is refused. */
export const PRERELEASE =
	"a version before 1.0.0 wrote the database; release 1.0.0 imports an export of it (docs/upgrade.md)";

/** PostgreSQL's schema, apart from the tables of other programs. Names of tables have it as a prefix. */
export const SCHEMA = { sqlite: "", postgres: "conversation_updates." } as const;

/** The types of columns, as statements name them. */
export const SQL_TYPES: Readonly<Record<Engine, Readonly<Record<ColumnType, string>>>> = {
	sqlite: {
		id: "TEXT",
		integer: "INTEGER",
		real: "REAL",
		boolean: "INTEGER",
		text: "TEXT",
		key: "TEXT",
		plain: "TEXT",
		bytes: "BLOB",
		uuid: "TEXT",
		time: "INTEGER",
		words: "TEXT",
	},
	postgres: {
		id: "uuid",
		integer: "bigint",
		real: "double precision",
		boolean: "boolean",
		text: "text",
		key: "text",
		plain: "text",
		bytes: "bytea",
		uuid: "uuid",
		time: "timestamptz",
		words: "tsvector",
	},
};

/** Returns the statements that create the tables of an engine, with their indexes and first rows. */
export function createTables(engine: Engine): string[] {
	return allTables(engine).flatMap((table) => createTable(engine, table));
}

function createTable(engine: Engine, table: Table): string[] {
	const name = SCHEMA[engine] + table.name;
	return [
		`CREATE TABLE ${name} (\n\t${definitions(engine, table).join(",\n\t")}\n)${options(engine, table)}`,
		// In the table's definition only PostgreSQL 16 and later know it.
		...(table.external === undefined
			? []
			: [`ALTER TABLE ${name} ALTER COLUMN ${table.external} SET STORAGE EXTERNAL`]),
		...Object.entries(table.indexes).map(([index, on]) => {
			const [kind, columns] = typeof on === "string" ? ["INDEX", on] : ["UNIQUE INDEX", on.unique];
			return `CREATE ${kind} ${index} ON ${name} ${columns}`;
		}),
		...(table.rows === undefined ? [] : [`INSERT INTO ${name} ${table.rows}`]),
	];
}

function definitions(engine: Engine, table: Table): string[] {
	const isRowId = hasRowId(table);
	const columns = Object.entries(table.columns).map(([column, type]) => {
		const sqlType = SQL_TYPES[engine][type];
		if (engine === "sqlite" && isRowId && table.key[0] === column) return `${column} ${sqlType} PRIMARY KEY`;
		// All texts are compared byte by byte, as SQLite does.
		const collation = engine === "postgres" && sqlType === "text" ? ' COLLATE "C"' : "";
		return `${column} ${sqlType}${collation}${table.nullable.has(column) ? "" : " NOT NULL"}`;
	});
	return engine === "sqlite" && isRowId ? columns : [...columns, `PRIMARY KEY (${table.key.join(", ")})`];
}

/** Returns whether the key is SQLite's row id. */
function hasRowId({ key: [first = "", ...others], columns }: Table): boolean {
	return others.length === 0 && columns[first] === "integer";
}

function options(engine: Engine, table: Table): string {
	if (engine === "sqlite") return hasRowId(table) ? " STRICT" : " STRICT, WITHOUT ROWID";
	return table.fillfactor === undefined ? "" : ` WITH (fillfactor = ${table.fillfactor})`;
}

/**
 * The steps from version 1, which release 1.0.0 wrote, to version 2: the indexes of the table `conversations` that change with
 * each post become fewer, notices have one by their time and events one by the response, and calls without an event are rows. The
 * tables of counts go, and PostgreSQL's table of writers.
 * Where the summary that 1.0.0 stored has no cost or no tokens, they were not reported; it left out a cost of 0.
 */
export function toVersion2(engine: Engine): string[] {
	const schema = SCHEMA[engine];
	return [
		...REMOVED_INDEXES.map((name) => `DROP INDEX ${schema}${name}`),
		`ALTER TABLE ${schema}tags DROP COLUMN sequence`,
		`UPDATE ${schema}conversations SET cost = ${NOT_REPORTED} WHERE cost = 0`,
		`UPDATE ${schema}conversations SET tokens = ${NOT_REPORTED} WHERE NOT EXISTS (
			SELECT 1 FROM ${schema}heads h WHERE h.conversation_id = ${schema}conversations.conversation_id
		)`,
		...["conversation_counts", "tag_key_counts", "tag_value_counts", ...(engine === "postgres" ? ["writers"] : [])].map(
			(name) => `DROP TABLE ${schema}${name}`,
		),
		`CREATE INDEX notices_by_time ON ${schema}notices (noticed_at)`,
		`CREATE INDEX events_by_response ON ${schema}events ${tableOf(engine, "events").indexes.events_by_response}`,
		...createTable(engine, tableOf(engine, "untimed_calls")),
		...Object.entries(CHANGED_INDEXES).map(([name, on]) => {
			const table = name.startsWith("tags") ? "tags" : "conversations";
			return `CREATE INDEX ${name} ON ${schema}${table} ${on}`;
		}),
	];
}

const CHANGED_INDEXES = {
	conversations_by_status: "(status)",
	conversations_by_agent_kind: "(agent_kind)",
	conversations_by_model: "(model)",
	conversations_by_parent: "(parent_id) WHERE parent_id IS NOT NULL",
	conversations_by_source: "(source_id) WHERE source_id IS NOT NULL",
	conversations_by_sender: "(sender)",
	conversations_by_owner: "(owner, sequence) WHERE owner IS NOT NULL",
	tags_by_value: "(key, value)",
};
const REMOVED_INDEXES = [
	...Object.keys(CHANGED_INDEXES),
	"tags_by_key",
	"conversations_of_owner_by_activity",
	"conversations_of_owner_by_created",
	"conversations_of_owner_by_cost",
	"conversations_of_owner_by_tokens",
];
