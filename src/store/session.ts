import type { ListOrder } from "./condition.ts";
import type { LogTable, NewestSequences } from "./sequence-log.ts";
import type { Engine, TableName } from "./tables.ts";
import type { DocumentQuery, EventWords, FoundDocument } from "./text-index.ts";
import { bigint, type Row } from "./values.ts";

/**
 * A value of a column or of a placeholder. A list of texts has ids of conversations, for {@link Terms.isIn}; texts that are
 * no ids are left out. A list of integers is for {@link Terms.isAmong}, rows are for {@link Dialect.rowsOf}.
 */
export type Value =
	| string
	| bigint
	| number
	| boolean
	| null
	| Uint8Array
	| readonly string[]
	| readonly bigint[]
	| { readonly rows: readonly (readonly (string | bigint)[])[] };

/** A fragment of SQL, with the values of its question marks. */
export interface Sql {
	readonly text: string;
	readonly parameters: readonly Value[];
}

export function sql(text: string, ...parameters: readonly Value[]): Sql {
	return { text, parameters };
}

/** Returns the fragment that is true where all are. */
export function allOf(fragments: readonly Sql[]): Sql {
	return {
		text: fragments.length === 0 ? "TRUE" : fragments.map(({ text }) => text).join(" AND "),
		parameters: fragments.flatMap(({ parameters }) => parameters),
	};
}

/** A test in SQL with the value of its question mark. It is left out if the value is undefined. */
export type Test = readonly [sql: string, value: Value | undefined];

/** Returns the fragment that is true where all tests are that have a value. */
export function given(tests: readonly Test[]): Sql {
	return allOf(tests.flatMap(([text, value]) => (value === undefined ? [] : [sql(text, value)])));
}

/** A condition in SQL. */
export interface SqlCondition {
	/** A test of a row of `conversations`, whose alias is `c`. */
	readonly test: Sql;
	/** Finds all rows that pass the test; undefined if nothing does. */
	readonly index?: IndexAccess | undefined;
	/** Whether it is the owner. */
	readonly isOwner?: boolean;
}

/** An index through which SQLite reads conversations; PostgreSQL's planner chooses one itself. */
export interface IndexAccess {
	/** What follows FROM: the table with its index, and the join with `c` if the table is another one. */
	readonly from: string;
	readonly where: Sql;
}

/** Values of columns, by the names of these. A missing one is null. */
export type Columns = Readonly<Record<string, Value | undefined>>;

/** A row to write. */
export interface Change {
	/** The row as it was read; undefined if there was none. */
	readonly before: Row | undefined;
	/** All columns. */
	readonly after: Columns;
}

/** What differs between the engines in statements that are written once. */
export interface Dialect {
	readonly engine: Engine;
	/** Prefix of the names of tables: their schema. */
	readonly schema: string;
	/** SQL for the newest sequence of each log. */
	readonly newest: Readonly<Record<LogTable, string>>;
	/** Returns SQL for the sum of a column, as an integer of 64 bits that ends at its limits. */
	readonly sum: (column: string) => string;
	/** Names of the functions that return the least and the greatest of their arguments. */
	readonly least: string;
	readonly greatest: string;
	/** Ends a query whose rows are locked until the transaction ends. */
	readonly forUpdate: string;
	/** Words between two tables that the engine must read in this order. */
	readonly join: string;
	/** Joins the rows `u` of a table that meet a test, which the engine must look up by its index for each row before. */
	readonly lookUp: (table: string, test: string) => string;
	/** Returns a query with these columns, for one value: the rows. */
	readonly rowsOf: (columns: Readonly<Record<string, "id" | "integer" | "text">>) => string;
	/** Returns SQL for a text as the id of a conversation; no row has it if the text is none. */
	readonly idOf: (text: string) => string;
	/** Returns SQL for whether a column has a value of a query, which makes the engine look up each of them by an index. */
	readonly isOneOf: (column: string, query: string) => string;
	/** Name of the function that returns where a text contains another one: 0 if it does not. */
	readonly placeOf: string;
}

/** How conversations `c` are found: the rows of `from` that pass all tests. */
export interface Found {
	readonly from: string;
	readonly tests: readonly Sql[];
}

/** What statements consist of. */
export interface Terms {
	readonly dialect: Dialect;
	/** Returns SQL for whether a column with ids of conversations has one of a list, which is one value. */
	readonly isIn: (column: string) => string;
	/** The same for a column of integers. */
	readonly isAmong: (column: string) => string;
}

/**
 * A transaction of either engine, for statements that are written once. SQLite's session works in the thread that has the
 * database open, and answers at once; no other work of the thread comes between. That of PostgreSQL sends each statement
 * when it is called, so that calls that do not wait for each other share a round trip.
 */
export interface Session extends Terms {
	/** Runs a statement, whose placeholders are question marks. Tables have the prefix {@link Dialect.schema}. */
	readonly all: (text: string, ...values: readonly Value[]) => Promise<Row[]>;
	/** Inserts rows, and changes those that exist. */
	readonly write: (table: TableName, changes: readonly Change[]) => Promise<void>;
	/**
	 * Inserts rows.
	 *
	 * @param ifExists SQL of what is done for a row whose key is in the table `t` already: `NOTHING`, or `UPDATE SET` with the
	 *   assignments. Left out: the statement fails
	 */
	readonly insert: (table: TableName, rows: readonly Columns[], ifExists?: string) => Promise<void>;
	/** Removes the rows with some keys. */
	readonly remove: (table: TableName, keys: readonly Columns[]) => Promise<void>;
	/**
	 * Adds to the columns of rows beside the key, which are integers. A number that would pass its limit ends at it. A row
	 * that does not exist has 0, and one whose numbers are all 0 is removed.
	 */
	readonly add: (table: TableName, rows: readonly Columns[]) => Promise<void>;
	/**
	 * Waits for other transactions that write to conversations, and keeps them waiting until this one ends. Only a later
	 * statement sees what they wrote. A transaction calls it once, before it writes.
	 *
	 * @returns whether later statements can see more than those that were sent together with it
	 */
	readonly lock: (conversationIds: readonly string[]) => Promise<boolean>;
	/** Keeps other transactions from writing to a table until this one ends. */
	readonly lockTable: (table: TableName) => Promise<void>;
	/** Returns the newest sequences. No other transaction takes further ones until this one ends. */
	readonly lockSequences: () => Promise<NewestSequences>;
	/** Stores which are the newest sequences, once their entries are written. */
	readonly saveSequences: (newest: NewestSequences) => Promise<void>;
	/**
	 * Returns how conversations that meet conditions are found.
	 *
	 * @param order that of a list; undefined for all of them in any order
	 */
	readonly find: (conditions: readonly SqlCondition[], order: ListOrder | undefined) => Promise<Found>;
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
	/** Writes words to the index of search, in place of those that it has. */
	readonly writeWords: (events: readonly EventWords[]) => Promise<void>;
	/** Finds the documents of a query that are texts of events, of conversations `c` that pass tests. */
	readonly findTexts: (query: DocumentQuery, tests: readonly Sql[]) => Promise<FoundDocument[]>;
	/** Removes the words of events that were removed. */
	readonly removeWordsOf: (events: readonly bigint[]) => Promise<void>;
	/** Removes all documents from the index of search, which may be damaged. PostgreSQL's `REINDEX` mends one. */
	readonly emptyWords: () => Promise<void>;
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

/** Reads the newest sequences. */
export async function readNewest({
	all,
	dialect: { newest },
}: Pick<Session, "all" | "dialect">): Promise<NewestSequences> {
	const [row] = await all(`SELECT ${newest.updates} AS updates, ${newest.events} AS events`);
	return { updates: bigint(row?.updates), events: bigint(row?.events) };
}

/** A claim of some work, so that one process at a time does it. */
export interface Claim {
	readonly name: string;
	/** Identifies the process. */
	readonly holder: string;
	/** The claim of another holder ends at its `until`. Microseconds since the Unix epoch. */
	readonly now: bigint;
	readonly until: bigint;
}

/** What claims work. */
export type Claims = Calls<{ readonly claim: typeof claim }>;

/** Claims some work, or renews the claim. Returns false when another holder has the claim. */
export async function claim(
	{ all, dialect: { schema } }: Session,
	{ name, holder, now, until }: Claim,
): Promise<boolean> {
	const rows = await all(
		`INSERT INTO ${schema}claims AS c (name, holder, until) VALUES (?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE c.holder = excluded.holder OR c.until <= ? RETURNING name`,
		name,
		holder,
		until,
		now,
	);
	return rows.length > 0;
}

/** Claims some work for a time in milliseconds from now on, or ends the claim with 0: see {@link Claims}. */
export function claimFor(store: Claims, name: string, holder: string, milliseconds: number): Promise<boolean> {
	const now = Date.now();
	return store.claim({ name, holder, now: BigInt(now) * 1000n, until: BigInt(now + milliseconds) * 1000n });
}
