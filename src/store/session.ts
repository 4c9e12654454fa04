import type { Condition, ListOrder } from "./condition.ts";
import type { LogTable, NewestSequences } from "./sequence-log.ts";
import { type Engine, type Table, type TableName, tableOf } from "./tables.ts";
import type { DocumentQuery, FoundDocument, IndexStep } from "./text-index.ts";
import type { Row, StoredRecord, Unreadable } from "./values.ts";

/**
 * A value of a column or of a placeholder. A list of texts has ids of conversations, for {@link Terms.isIn}; texts that are
 * no ids are left out. A list of integers is for {@link Terms.isAmong}.
 */
export type Value = string | bigint | number | boolean | null | Uint8Array | readonly string[] | readonly bigint[];

/** A fragment of SQL, with the values of its question marks. */
export interface Sql {
	readonly text: string;
	readonly parameters: readonly Value[];
}

/** A condition in SQL. */
export interface SqlCondition {
	/** A test of a row of `conversations`, whose alias is `c`. */
	readonly test: Sql;
	/** A join that the test needs. */
	readonly join?: string;
	/** Finds all rows that pass the test; undefined if nothing does. */
	readonly index?: IndexAccess | undefined;
	/** Whether it is the owner. */
	readonly isOwner?: boolean;
}

/** An index through which SQLite reads conversations; PostgreSQL's planner chooses one itself. */
export interface IndexAccess {
	/** Table and index for FROM. */
	readonly from: string;
	/** Join with `c` if the table is another one. */
	readonly join: string;
	readonly where: Sql;
}

/** Values of columns, by the names of these. A missing one is null. */
export type Columns = Readonly<Record<string, Value | undefined>>;

/** A row to write. */
export interface Change {
	/** The row as it was read; undefined if there was none. */
	readonly before: Row | undefined;
	/** All columns, in the form of {@link Session.stored}. */
	readonly after: Columns;
}

/** Message of the error of a sum that is beyond 64 bits: see {@link Dialect.quickSum}. */
export const OVERFLOW = "integer overflow";

/** How the entries `e` of a log are read. */
export interface LogDialect {
	/** The log in the order of sequences, with the table that has the id of the conversation. */
	readonly from: string;
	/** The same, first those of the conversations that are tested. */
	readonly ofOne: string;
	/** The log of an owner, in the order of sequences, with the columns for these. */
	readonly ofOwner: { readonly from: string; readonly owner: string; readonly sequence: string };
	/** Columns with the id and the owner of the conversation; not for `ofOwner`. */
	readonly conversationId: string;
	readonly owner: string;
	/** SQL for whether an entry, without an alias, is of the conversation with an id. */
	readonly isOf: string;
	/** SQL for the bytes of the whole record or text. */
	readonly size: string;
	/** SQL for the largest sequence that was assigned or skipped, beside the row `r` of {@link Dialect.removals}. */
	readonly used: string;
	/** Statement that makes a sequence, its only value, the largest one that was assigned or skipped. */
	readonly skip: string;
}

/** What differs between the engines in statements that are written once. */
export interface Dialect {
	readonly engine: Engine;
	/** Prefix of the names of tables: their schema. */
	readonly schema: string;
	/** Column of `heads` and `conversations` to which other tables refer, and the name of such a reference. */
	readonly headKey: string;
	readonly headReference: string;
	readonly entries: Readonly<Record<LogTable, LogDialect>>;
	/** Events `e` by their ids, with what makes the engine look these up in each conversation. */
	readonly eventsById: { readonly from: string; readonly test: string };
	/**
	 * Events `e` by the responses that they show, for one value: a JSON array of pairs `p` of the id of a conversation and that of
	 * a response in its stored form.
	 */
	readonly eventsByResponse: string;
	/** SQL for the newest sequence of each log. */
	readonly newest: Readonly<Record<LogTable, string>>;
	/** Returns SQL for whether an update `u` is the current one of a conversation, of which a table has the row. */
	readonly isCurrent: (alias: string) => string;
	/** Returns SQL for whether an update is the base of another one, which needs it. */
	readonly isBase: (alias: string) => string;
	/** Returns SQL for whether an event `e` is the one with the sequence of another row. */
	readonly isEvent: (alias: string) => string;
	/** SQL of the key that lists use for a conversation without a head, whose activity is `a`. */
	readonly keyWithoutHead: string;
	/** SQL for whether an event `e` is of the activity `a`. */
	readonly isOfActivity: string;
	/** Table that has for each log how far it was pruned, and the number of the last removal. */
	readonly removals: string;
	/** Table that has the time of retention, in its only row. */
	readonly clock: string;
	/** SQL of the title of a conversation `c`. */
	readonly title: string;
	/** Column of `usage_conversations` with the ids of the conversations. Its column `id` identifies the rows. */
	readonly usageId: string;
	/** Tables of usage that refer to a conversation by an id that changes when it is erased. */
	readonly usageReferences: readonly TableName[];
	/** Returns SQL for the sum of a column, as an integer of 64 bits that ends at its limits. */
	readonly sum: (column: string) => string;
	/** As `sum`, with less work. May fail with {@link OVERFLOW} when the sum or a part of it is beyond the limits. */
	readonly quickSum: (column: string) => string;
	/** As `sum`, as a floating-point number. */
	readonly realSum: (column: string) => string;
	/** Names of the functions that return the least and the greatest of their arguments. */
	readonly least: string;
	readonly greatest: string;
	/** Returns SQL for the JSON text of an array with an array of values for each row of a group. */
	readonly jsonRows: (values: string) => string;
	/** Ends a query whose rows are locked until the transaction ends. */
	readonly forUpdate: string;
	/** Words between two tables that the engine must read in this order. */
	readonly join: string;
	/** Joins the rows `u` of a table that meet a test, which the engine must look up by its index for each row before. */
	readonly lookUp: (table: string, test: string) => string;
	/** Query with the columns period, length, first and beyond, for one value: a JSON array of arrays of these. */
	readonly segments: string;
	/** SQL for whether `p` of conversations has the id `up.id`, a text. */
	readonly isParent: string;
	/** Number of records that are in memory together, where many are read. */
	readonly recordsAtOnce: number;
	/**
	 * Translates conditions that the engines look up in different ways.
	 *
	 * @param alias name for a table that the condition joins
	 */
	readonly tagCondition: (condition: Extract<Condition, { kind: "tag" }>, alias: string) => SqlCondition;
	readonly titleCondition: (condition: Extract<Condition, { kind: "title" }>, alias: string) => SqlCondition;
}

/** The title of a conversation before and after a change. */
export interface TitleChange {
	readonly key: Value;
	/** In its stored form. */
	readonly before: string | undefined;
	readonly after: string | undefined;
}

/** How conversations `c` are found: the rows of `from` that pass all tests. */
export interface Found {
	readonly from: string;
	readonly tests: readonly Sql[];
}

/** Reads records. A damaged one does not make the others fail. */
export interface RecordReader extends Disposable {
	/** SQL columns, and joins, that the rows need; each begins with what separates it from others. */
	readonly columns: string;
	readonly join: string;
	/** Returns the whole record of an update, in memory that nothing else uses. The row has the `sequence`. */
	read(row: Row): StoredRecord | Unreadable;
}

/** The text of an event that was compressed, with its columns. */
export interface RepackedText {
	readonly sequence: bigint;
	readonly record: Uint8Array;
	readonly unpackedSize: number | null;
	readonly checksum: number;
	/** Checksum of its former form. With another one the event was changed meanwhile, and stays as it is. */
	readonly formerChecksum: number;
}

/** Texts that were compressed, and the range of events in which all others were found to need nothing. */
export interface RepackedRange {
	readonly first: bigint;
	readonly last: bigint;
	/** At least one. */
	readonly texts: readonly RepackedText[];
}

/** What statements consist of. */
export interface Terms {
	readonly dialect: Dialect;
	/** Returns SQL for whether a column with ids of conversations has one of a list, which is one value. */
	readonly isIn: (column: string) => string;
	/** The same for a column of integers. */
	readonly isAmong: (column: string) => string;
	/** Reads a `text` from its stored form. */
	readonly readText: (value: unknown) => string;
	/** Returns the stored form of a `text`, and of a `key`. */
	readonly storeText: (value: string) => string;
	readonly storeKey: (value: string) => string;
}

/**
 * A transaction of either engine, for statements that are written once. SQLite's session works in the thread that has the
 * database open, and answers at once; no other work of the thread comes between.
 */
export interface Session extends Terms {
	/** Runs a statement, whose placeholders are question marks. Tables have the prefix {@link Dialect.schema}. */
	readonly all: (text: string, ...values: readonly Value[]) => Promise<Row[]>;
	/** Returns a row in its stored form, in which a `key` may be cut. */
	readonly stored: (table: Table, row: Columns) => Columns;
	/** Inserts rows, and changes those that exist. */
	readonly write: (table: Table, changes: readonly Change[]) => Promise<void>;
	/**
	 * Inserts rows.
	 *
	 * @param ifExists SQL of what is done for a row whose key is in the table `t` already: `NOTHING`, or `UPDATE SET` with the
	 *   assignments. Left out: the statement fails
	 */
	readonly insert: (table: TableName, rows: readonly Columns[], ifExists?: string) => Promise<void>;
	/** Inserts entries of a log, with the owners of their conversations, which are stored already. */
	readonly insertEntries: (log: LogTable, rows: readonly Columns[]) => Promise<void>;
	/**
	 * Removes entries of a log with their words in the index of search. Their sequences are not used again.
	 *
	 * @param of the conversation of all of them; left out if there are several
	 * @returns the sequences of the entries that existed
	 */
	readonly removeEntries: (log: LogTable, sequences: readonly bigint[], of?: string) => Promise<bigint[]>;
	/** Takes a sequence of the log of updates, which no entry gets. */
	readonly takeSequence: () => Promise<bigint>;
	/** Removes the words of a conversation's title from the index of search. */
	readonly removeTitleWords: (conversationId: string) => Promise<void>;
	/** Removes the rows with some keys, in their stored form. */
	readonly remove: (table: Table, keys: readonly Columns[]) => Promise<void>;
	/**
	 * Adds to the columns of rows beside the key, which are integers. A number that would pass its limit ends at it. A row
	 * that does not exist has 0, and one whose numbers are all 0 is removed.
	 *
	 * @param rows in their stored form
	 */
	readonly add: (table: Table, rows: readonly Columns[]) => Promise<void>;
	/**
	 * Waits for other transactions that write to conversations, and keeps them waiting until this one ends. Only a later
	 * statement sees what they wrote. A transaction calls it once, before it writes.
	 */
	readonly lock: (conversationIds: readonly string[]) => Promise<void>;
	/** Keeps other transactions from writing to a table until this one ends. */
	readonly lockTable: (table: TableName) => Promise<void>;
	/** Gives all entries of conversations, and what is stored of these by their ids, an owner. */
	readonly setOwner: (conversationIds: readonly string[], owner: string) => Promise<void>;
	/**
	 * Returns how conversations that meet conditions are found.
	 *
	 * @param order that of a list; undefined for all of them in any order
	 */
	readonly find: (conditions: readonly SqlCondition[], order: ListOrder | undefined) => Promise<Found>;
	/** Reads the records of the updates `u` in the rows of one statement. */
	readonly records: () => RecordReader;
	/**
	 * Reads the contents of events `e`: the further columns that the rows of a statement need, after a comma, and the row with the
	 * contents of an event, by its own row, which has the `sequence`. A damaged one makes only its own read fail.
	 */
	readonly contents: { readonly columns: string; readonly read: (row: Row) => Row | undefined };
	/**
	 * Returns whether rows are spread over servers by their conversation. A statement then cannot follow rows to those of other
	 * conversations any number of times, nor has it subqueries that depend on a row and end at a limit.
	 */
	readonly isSpread: () => Promise<boolean>;
	/**
	 * Returns the sequences up to which later statements read all entries of both logs. Undefined if the order of sequences is
	 * the order in which entries become visible; else later statements also see what this transaction sees as committed.
	 *
	 * @param conversationId the only conversation that is read; left out for all
	 */
	readonly settled: (conversationId?: string) => Promise<NewestSequences | undefined>;
	/** Does the same. Returns the newest sequences in place of undefined. */
	readonly newestEntries: () => Promise<NewestSequences>;
	/** Changes the titles by which lists filter. */
	readonly writeTitles: (changes: readonly TitleChange[]) => Promise<void>;
	/** Removes all titles. */
	readonly removeTitles: () => Promise<void>;
	/** Adds the words of a step to the index of search. Events and conversations that do not exist any more are left out. */
	readonly writeWords: (step: Pick<IndexStep, "events" | "titles">) => Promise<void>;
	/** See `TextIndex.find`. */
	readonly findDocuments: (query: DocumentQuery) => Promise<FoundDocument[]>;
	/** Removes all documents from the index of search, or some of them. Returns whether some may be left. */
	readonly removeWords: () => Promise<boolean>;
	/** Stores texts of events that were compressed. */
	readonly writeTexts: (range: RepackedRange) => Promise<void>;
}

/** The calls that run operations. */
export type Calls<Operations> = {
	readonly [Name in keyof Operations]: Operations[Name] extends (session: Session) => Promise<infer Result>
		? () => Promise<Result>
		: Operations[Name] extends (session: Session, argument: infer Argument) => Promise<infer Result>
			? (argument: Argument) => Promise<Result>
			: never;
};

/**
 * Returns the calls of operations.
 *
 * @param run runs an operation in a transaction
 */
export function callsOf<Operations extends Readonly<Record<string, Operation>>>(
	operations: Operations,
	run: (name: keyof Operations & string, work: (session: Session) => Promise<unknown>) => Promise<unknown>,
): Calls<Operations> {
	const calls = Object.entries(operations).map(([name, operation]) => [
		name,
		(argument: never) => run(name, (session) => operation(session, argument)),
	]);
	return Object.fromEntries(calls) as Calls<Operations>;
}

type Operation = (session: Session, argument: never) => Promise<unknown>;

/** Inserts a row, unless there is one with the same key or the same unique values. Returns whether it was inserted. */
export async function insertNew(
	{ all, stored, dialect: { engine, schema } }: Session,
	name: TableName,
	row: Columns,
): Promise<boolean> {
	const columns = Object.entries(stored(tableOf(engine, name), row));
	const names = columns.map(([column]) => column);
	const inserted = await all(
		`INSERT INTO ${schema}${name} (${names.join()}) VALUES (${names.map(() => "?").join()})
		ON CONFLICT DO NOTHING RETURNING ${names[0]}`,
		...columns.map(([, value]) => value ?? null),
	);
	return inserted.length > 0;
}
