import type { Columns } from "./session.ts";
import { type ColumnType, type Descriptions, type TableName, tableOf } from "./tables.ts";
import { bigint, blob, boolean, type Row, text } from "./values.ts";

/** Rows as objects, whose members have the names of the columns in camel case, and the types that the description says. */

type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
	? `${First}${Capitalize<CamelCase<Rest>>}`
	: Name;

interface Types {
	readonly id: string;
	readonly integer: bigint;
	readonly real: number;
	readonly boolean: boolean;
	readonly text: string;
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
	real: (value) => value,
	boolean,
	text,
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
		Object.entries(tableOf("postgres", name).columns).map(
			([column, type]) => [column, camelCase(column), type] as const,
		),
	);
}

/** Reads a row that has all columns of a table. */
export function readRow<Name extends TableName>(name: Name, row: Row): RowOf<Name> {
	const read = membersOf(name).map(([column, member, type]) => [
		member,
		row[column] === null ? undefined : READERS[type](row[column]),
	]);
	// The type follows from the same description.
	return Object.fromEntries(read) as RowOf<Name>;
}

/** Returns the columns of a row, or of some of its members. */
export function columnsOf<Name extends TableName>(name: Name, row: Partial<RowOf<Name>>): Columns {
	const values = new Map<string, Columns[string]>(Object.entries(row));
	return Object.fromEntries(
		membersOf(name).flatMap(([column, member]) => (values.has(member) ? [[column, values.get(member) ?? null]] : [])),
	);
}
