import type { LogTable } from "./sequence-log.ts";

import type { Engine, Table, TableName } from "./tables.ts";
import type { Row } from "./values.ts";

/** A value of a column or of a placeholder. A list is for {@link Session.isIn}. */
export type Value = string | bigint | number | boolean | null | Uint8Array | readonly string[];

/** Values of columns, by the names of these. A missing one is null. */
export type Columns = Readonly<Record<string, Value | undefined>>;

/** A row to write. */
export interface Change {
	/** The row as it was read; undefined if there was none. */
	readonly before: Row | undefined;
	/** All columns, in the form of {@link Session.stored}. */
	readonly after: Columns;
}

/** What differs between the engines in statements that are written once. */
export interface Dialect {
	readonly engine: Engine;
	/** Prefix of the names of tables: their schema. */
	readonly schema: string;
	/** Column of `heads` and `conversations` to which other tables refer, and the name of such a reference. */
	readonly headKey: string;
	readonly headReference: string;
	/**
	 * The logs as `e`, with the table that has the id of the conversation. `besideDamage` reads an index only, not the pages
	 * of the entries.
	 */
	readonly entries: Readonly<
		Record<LogTable, { readonly from: string; readonly besideDamage: string; readonly conversationId: string }>
	>;
	/** SQL for whether an update `u` is the current one of the conversation whose head is `h`. */
	readonly isCurrent: string;
	/** SQL of the key that lists use for a conversation without a head, whose activity is `a`. */
	readonly keyWithoutHead: string;
	/** SQL for whether an event `e` is of the activity `a`. */
	readonly isOfActivity: string;
	/** SQL of the title of a conversation `c`. */
	readonly title: string;
	/** Column of `usage_conversations` with the ids of the conversations. Its column `id` identifies the rows. */
	readonly usageId: string;
	/** Tables of usage that refer to a conversation by an id that changes when it is erased. */
	readonly usageReferences: readonly string[];
	/** Returns SQL for the sum of a column, as an integer of 64 bits that ends at its limits. */
	readonly sum: (column: string) => string;
	/** Ends a query whose rows are locked until the transaction ends. */
	readonly forUpdate: string;
}

/** The title of a conversation before and after a change. */
export interface TitleChange {
	readonly key: Value;
	/** In its stored form. */
	readonly before: string | undefined;
	readonly after: string | undefined;
}

/**
 * A transaction of either engine, for statements that are written once. SQLite's session works in the thread that has the
 * database open, and answers at once; no other work of the thread comes between.
 */
export interface Session {
	readonly dialect: Dialect;
	/** Runs a statement, whose placeholders are question marks. Tables have the prefix {@link Dialect.schema}. */
	readonly all: (text: string, ...values: readonly Value[]) => Promise<Row[]>;
	/** Returns SQL for whether a column with ids of conversations has one of a list, which is one value. */
	readonly isIn: (column: string) => string;
	/** Reads a `text` from its stored form. */
	readonly readText: (value: unknown) => string;
	/** Returns a row in its stored form, in which a `key` may be cut. */
	readonly stored: (table: Table, row: Columns) => Columns;
	/** Inserts rows, and changes those that exist. */
	readonly write: (table: Table, changes: readonly Change[]) => Promise<void>;
	/** Inserts rows. */
	readonly insert: (table: TableName, rows: readonly Columns[]) => Promise<void>;
	/** Inserts entries of a log, with the owners of their conversations, which are stored already. */
	readonly insertEntries: (log: LogTable, rows: readonly Columns[]) => Promise<void>;
	/** Removes the rows with some keys, in their stored form. */
	readonly remove: (table: Table, keys: readonly Columns[]) => Promise<void>;
	/**
	 * Adds to the columns of rows beside the key, which are integers. A number that would pass its limit ends at it. A row
	 * that does not exist has 0, and one whose numbers are all 0 is removed.
	 *
	 * @param rows in their stored form
	 */
	readonly add: (table: Table, rows: readonly Columns[]) => Promise<void>;
	/** Changes the titles by which lists filter. */
	readonly writeTitles: (changes: readonly TitleChange[]) => Promise<void>;
	/** Removes all titles. */
	readonly removeTitles: () => Promise<void>;
}
