import { type Columns, given, type Session, type Test } from "./session.ts";
import { type ColumnType, type Descriptions, type TableName, tableOf } from "./tables.ts";
import { bigint, blob, boolean, integer, type Row, text } from "./values.ts";

/**
 * Rows as objects, whose members have the names of the columns in camel case, and the types that the description says; and
 * the statements about single rows, which follow from the description too.
 */

type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
	? `${First}${Capitalize<CamelCase<Rest>>}`
	: Name;

interface Types {
	readonly id: string;
	readonly integer: bigint;
	readonly count: number;
	readonly real: number;
	readonly boolean: boolean;
	readonly text: string;
	readonly names: readonly string[];
	readonly key: string;
	readonly bytes: Uint8Array;
	readonly words: string;
}

type ValueOf<Column> = Column extends `${infer Type extends ColumnType}?`
	? Types[Type] | undefined
	: Column extends ColumnType
		? Types[Column]
		: never;

/** A row of a table. A null column is undefined. */
export type RowOf<Name extends TableName> = {
	readonly [Column in keyof Descriptions[Name]["columns"] & string as CamelCase<Column>]: ValueOf<
		Descriptions[Name]["columns"][Column]
	>;
};

const READERS: Readonly<Record<ColumnType, (value: unknown) => unknown>> = {
	id: text,
	integer: bigint,
	count: integer,
	real: (value) => value,
	boolean,
	text,
	names: (value) => text(value).split(",").filter(Boolean),
	key: text,
	bytes: blob,
	words: text,
};

function camelCase(column: string): string {
	return column.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

const members = new Map<TableName, readonly (readonly [column: string, member: string, type: ColumnType])[]>();

function membersOf(name: TableName) {
	return members.getOrInsertComputed(name, () =>
		Object.entries(tableOf(name).columns).map(([column, type]) => [column, camelCase(column), type] as const),
	);
}

/** Reads a row that has all columns of a table. */
export function readRow<Name extends TableName>(name: Name, row: Row): RowOf<Name> {
	const read: Record<string, unknown> = {};
	for (const [column, member, type] of membersOf(name)) {
		const value = row[column];
		read[member] = value === null ? undefined : READERS[type](value);
	}
	// The type follows from the same description.
	return read as RowOf<Name>;
}

/** Returns the columns of a row, or of some of its members, as they are read back. */
export function columnsOf<Name extends TableName>(name: Name, row: RowOf<Name> | Partial<RowOf<Name>>): Columns;
export function columnsOf(name: TableName, row: Columns): Columns {
	const columns: Record<string, Columns[string]> = {};
	for (const [column, member, type] of membersOf(name)) {
		if (!(member in row)) continue;
		const value = row[member] ?? null;
		if (type === "names") columns[column] = String(value);
		else columns[column] = type === "count" && typeof value === "number" ? BigInt(value) : value;
	}
	return columns;
}

/** Reads the rows of a table that pass all tests. */
export async function selectRows<Name extends TableName>(
	{ all, dialect: { schema } }: Session,
	name: Name,
	tests: readonly Test[],
	order: string,
	limit?: number,
): Promise<RowOf<Name>[]> {
	const where = given(tests);
	const rows = await all(
		`SELECT * FROM ${schema}${name} WHERE ${where.text} ORDER BY ${order} ${limit === undefined ? "" : "LIMIT ?"}`,
		...where.parameters,
		...(limit === undefined ? [] : [limit]),
	);
	return rows.map((row) => readRow(name, row));
}

/** Inserts a row, unless there is one with the same key or the same unique values. Returns whether it was inserted. */
export async function insertNew<Name extends TableName>(
	{ all, dialect: { schema } }: Session,
	name: Name,
	row: RowOf<Name>,
): Promise<boolean> {
	const columns = Object.entries(columnsOf(name, row));
	const inserted = await all(
		`INSERT INTO ${schema}${name} (${columns.map(([column]) => column).join()})
		VALUES (${columns.map(() => "?").join()}) ON CONFLICT DO NOTHING RETURNING 1 AS inserted`,
		...columns.map(([, value]) => value ?? null),
	);
	return inserted.length > 0;
}

/**
 * Changes the rows with some values. Returns whether there were any.
 *
 * @param also SQL of further assignments
 */
export async function changeRows<Name extends TableName>(
	{ all, dialect: { schema } }: Session,
	name: Name,
	which: Partial<RowOf<Name>>,
	changes: Partial<RowOf<Name>>,
	...also: readonly string[]
): Promise<boolean> {
	const [{ text: where, parameters }, set] = [isRow(name, which), Object.entries(columnsOf(name, changes))];
	const assignments = [...set.map(([column]) => `${column} = ?`), ...also];
	const changed = await all(
		`UPDATE ${schema}${name} SET ${assignments.join()} WHERE ${where} RETURNING 1 AS changed`,
		...set.map(([, value]) => value ?? null),
		...parameters,
	);
	return changed.length > 0;
}

/** Removes the rows with some values. Returns whether there were any. */
export async function removeRows<Name extends TableName>(
	{ all, dialect: { schema } }: Session,
	name: Name,
	which: Partial<RowOf<Name>>,
): Promise<boolean> {
	const { text: where, parameters } = isRow(name, which);
	return (await all(`DELETE FROM ${schema}${name} WHERE ${where} RETURNING 1 AS removed`, ...parameters)).length > 0;
}

function isRow<Name extends TableName>(name: Name, which: Partial<RowOf<Name>>) {
	return given(Object.entries(columnsOf(name, which)).map(([column, value]): Test => [`${column} = ?`, value]));
}
