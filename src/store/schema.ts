import { allTables, type ColumnType, type Engine, type Table } from "./tables.ts";

/** The schemas of databases: the statements that create the described tables, and what both engines say of old databases. */

/** A table that databases from before release 1.0.0 have and later ones do not. */
export const PRERELEASE_TABLE = "derivations";
/** Why such a database is refused. */
export const PRERELEASE =
	"a version before 1.0.0 wrote the database; release 1.0.0 imports an export of it (docs/upgrade.md)";

/** PostgreSQL's schema, apart from the tables of other programs. Names of tables have it as a prefix. */
export const SCHEMA = { sqlite: "", postgres: "conversation_updates." } as const;

/** The types of columns, as statements name them. */
const SQL_TYPES: Readonly<Record<ColumnType, Readonly<Record<Engine, string>>>> = {
	id: { sqlite: "TEXT", postgres: "uuid" },
	integer: { sqlite: "INTEGER", postgres: "bigint" },
	count: { sqlite: "INTEGER", postgres: "bigint" },
	real: { sqlite: "REAL", postgres: "double precision" },
	boolean: { sqlite: "INTEGER", postgres: "boolean" },
	text: { sqlite: "TEXT", postgres: "text" },
	names: { sqlite: "TEXT", postgres: "text" },
	key: { sqlite: "TEXT", postgres: "text" },
	bytes: { sqlite: "BLOB", postgres: "bytea" },
	words: { sqlite: "TEXT", postgres: "tsvector" },
};

/** Returns the statements that create the tables of an engine, with their indexes and first rows. */
export function createTables(engine: Engine): string[] {
	return allTables(engine).flatMap((table) => createTable(engine, table));
}

/**
 * Returns the statements that create a table: see {@link createTables}.
 *
 * @param withIndexes whether they create its indexes, and with `withRows` its first rows, too
 */
export function createTable(engine: Engine, table: Table, withIndexes = true, withRows = true): string[] {
	const name = SCHEMA[engine] + table.name;
	return [
		`CREATE TABLE ${name} (\n\t${definitions(engine, table).join(",\n\t")}\n)${options(engine, table)}`,
		// In the table's definition only PostgreSQL 16 and later know it.
		...(engine === "sqlite" || table.external === undefined
			? []
			: [`ALTER TABLE ${name} ALTER COLUMN ${table.external} SET STORAGE EXTERNAL`]),
		...(withIndexes ? createIndexes(engine, table) : []),
		...(table.rows === undefined || !withRows ? [] : [`INSERT INTO ${name} ${table.rows}`]),
	];
}

/** Returns the statements that create the indexes of a table. */
export function createIndexes(engine: Engine, table: Table): string[] {
	// The other column of the key finds a row in the order in which the rows are kept.
	const [suffix, column] = engine === "sqlite" ? ["conversation", "conversation_id"] : ["sequence", "sequence"];
	const second = table.isSequenced === true ? [[`${table.name}_by_${suffix}`, `(${column})`] as const] : [];
	return [...Object.entries(table.indexes), ...second].map(([index, on]) => {
		const kind = typeof on === "string" ? "INDEX" : "UNIQUE INDEX";
		return `CREATE ${kind} ${index} ON ${SCHEMA[engine]}${table.name} ${typeof on === "string" ? on : on.unique}`;
	});
}

function definitions(engine: Engine, table: Table): string[] {
	const rowId = engine === "sqlite" ? rowIdOf(table) : undefined;
	const columns = Object.entries(table.columns).map(([column, type]) => {
		const sqlType = SQL_TYPES[type][engine];
		if (column === rowId) return `${column} ${sqlType} PRIMARY KEY`;
		// All texts are compared byte by byte, as SQLite does.
		const collation = engine === "postgres" && sqlType === "text" ? ' COLLATE "C"' : "";
		return `${column} ${sqlType}${collation}${table.nullable.has(column) ? "" : " NOT NULL"}`;
	});
	return rowId === undefined ? [...columns, `PRIMARY KEY (${table.key.join(", ")})`] : columns;
}

/** Returns the column that is SQLite's row id. */
function rowIdOf({ key: [first = "", ...others], columns, isSequenced }: Table): string | undefined {
	if (isSequenced === true) return "sequence";
	return others.length === 0 && columns[first] === "integer" ? first : undefined;
}

/** Largest number of indexes of a table whose rows SQLite keeps in the order of the key: each index has the whole key. */
const FEW_INDEXES = 3;

function options(engine: Engine, table: Table): string {
	if (engine === "postgres") return table.fillfactor === undefined ? "" : ` WITH (fillfactor = ${table.fillfactor})`;
	const hasRowId = rowIdOf(table) !== undefined || Object.keys(table.indexes).length > FEW_INDEXES;
	return hasRowId ? " STRICT" : " STRICT, WITHOUT ROWID";
}
