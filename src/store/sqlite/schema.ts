import type { DatabaseSync } from "node:sqlite";
import { NOT_REPORTED } from "../condition.ts";
import { createIndexes, createTable, createTables, PRERELEASE, PRERELEASE_TABLE } from "../schema.ts";
import { allTables, type Table, type TableName } from "../tables.ts";
import { integer, keyOf, nullable, text } from "../values.ts";
import { titleWords } from "../views/conversations.ts";
import { INDEX_OF_WORDS } from "./text-index.ts";

/** Marks a database as this service's: "CUWS" (https://www.sqlite.org/pragma.html#pragma_application_id). */
export const APPLICATION_ID = 0x43555753;

/**
 * Creates the tables in an empty database, or upgrades those of an earlier version, in one transaction.
 *
 * @throws Error as {@link schemaVersion}. The transaction is open then: the caller closes the connection
 */
export function createSchema(database: DatabaseSync): void {
	database.exec("BEGIN IMMEDIATE");
	const from = schemaVersion(database);
	if (from === 0)
		for (const statement of [`PRAGMA application_id = ${APPLICATION_ID}`, ...createTables("sqlite"), ...INDEX_OF_WORDS])
			database.exec(statement);
	if (from === 1) toVersion2(database);
	if (from < SCHEMA_VERSION) database.exec(`PRAGMA user_version = ${SCHEMA_VERSION}`);
	database.exec("COMMIT");
}

/** Version of the schema, stored as `user_version`. Release 1.0.0 wrote version 1. */
export const SCHEMA_VERSION = 2;

/**
 * Returns the schema version of a database; 0 when the database is empty.
 *
 * @throws Error when a newer release or one before 1.0.0 wrote the database, or when it belongs to another program
 */
export function schemaVersion(database: DatabaseSync): number {
	const pragma = (name: "application_id" | "user_version") =>
		integer(database.prepare(`PRAGMA ${name}`, { readBigInts: true }).get()?.[name]);
	const [id, version] = [pragma("application_id"), pragma("user_version")];
	const tables = new Set(
		database
			.prepare("SELECT name FROM sqlite_schema")
			.all()
			.map(({ name }) => name),
	);
	if (id === 0 && version === 0 && tables.size === 0) return 0;
	if (id !== APPLICATION_ID || version < 1) throw new Error("the file is a database of another program");
	if (tables.has(PRERELEASE_TABLE)) throw new Error(PRERELEASE);
	if (version > SCHEMA_VERSION)
		throw new Error(
			`the database has schema version ${version}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
		);
	return version;
}

/** Where the rows of a table come from: what follows FROM, and SQL for columns that are no columns of `o`. */
interface Source {
	readonly from: string;
	readonly columns?: Readonly<Record<string, string>>;
}

const OF_HEAD = { conversation_id: "h.conversation_id", owner: "h.owner" };
const OF_USAGE = { conversation_id: "k.conversation_id" };

/** The tables that are written anew. Their former ones have the prefix `v1_`. */
const SOURCES: Readonly<Partial<Record<TableName, Source>>> = {
	heads: { from: "v1_heads o" },
	activities: { from: "v1_activities o" },
	updates: {
		from: "v1_updates o JOIN v1_heads h ON h.id = o.conversation ORDER BY o.sequence",
		columns: { ...OF_HEAD, error_sequence: "NULL" },
	},
	events: { from: "v1_events o JOIN v1_activities h ON h.id = o.activity ORDER BY o.sequence", columns: OF_HEAD },
	children: { from: "v1_children o" },
	conversations: {
		from: "v1_conversations o",
		columns: {
			// The summary that 1.0.0 stored left out a cost of 0.
			cost: `CASE o.cost WHEN 0 THEN ${NOT_REPORTED} ELSE o.cost END`,
			tokens: `CASE WHEN EXISTS (SELECT 1 FROM v1_heads h WHERE h.conversation_id = o.conversation_id)
				THEN o.tokens ELSE ${NOT_REPORTED} END`,
			title_words: "title_words(o.title)",
		},
	},
	tags: {
		from: "v1_tags o JOIN v1_conversations c ON c.id = o.conversation",
		columns: { conversation_id: "c.conversation_id" },
	},
	usage_conversations: { from: "v1_usage_conversations o" },
	usage_ledger: { from: "v1_usage_ledger o JOIN v1_usage_conversations k ON k.id = o.conversation", columns: OF_USAGE },
	usage_days: { from: "v1_usage_days o JOIN v1_usage_conversations k ON k.id = o.conversation", columns: OF_USAGE },
	// Those of clients without a valid key had none.
	refused_posts: { from: "v1_refused_posts o WHERE o.sender IS NOT NULL" },
	endpoints: { from: "v1_endpoints o" },
	search_progress: { from: "v1_search_progress o" },
	removals: { from: "v1_logs o" },
	state: {
		from: "v1_store_state o",
		columns: {
			newest_update: "(SELECT skipped_through FROM v1_logs WHERE log = 'updates')",
			newest_event: "(SELECT skipped_through FROM v1_logs WHERE log = 'events')",
			rewrites: "0",
		},
	},
};

/**
 * Upgrades the tables of release 1.0.0: rows name their conversation by its id, in place of a number. The index of search is
 * written anew by the indexer. The caller has begun a transaction.
 */
function toVersion2(database: DatabaseSync): void {
	const define = (name: string, of: (value: string) => string) =>
		database.function(name, { deterministic: true }, (value) => nullable((one) => of(text(one)), value) ?? null);
	define("key_of", keyOf);
	define("title_words", titleWords);
	const names = (type: "table" | "index") =>
		database
			.prepare("SELECT name FROM sqlite_schema WHERE type = ? AND sql IS NOT NULL")
			.all(type)
			.map(({ name }) => text(name));
	for (const words of ["search_texts", "search_title_words", "titles"]) database.exec(`DROP TABLE ${words}`);
	const before = new Set(names("table"));
	const former = [...Object.keys(SOURCES), ...REMOVED].filter((name) => before.has(name));
	for (const name of former) database.exec(`ALTER TABLE ${name} RENAME TO v1_${name}`);
	for (const name of names("index")) database.exec(`DROP INDEX ${name}`);
	for (const table of allTables("sqlite")) {
		const source = SOURCES[table.name];
		const isKept = before.has(table.name) && source === undefined && !REMOVED.includes(table.name);
		// Indexes come last: they are written in order then.
		const statements = isKept ? [] : createTable("sqlite", table, false, source === undefined);
		if (source !== undefined) statements.push(copy(table, source));
		for (const statement of [...statements, ...createIndexes("sqlite", table)]) database.exec(statement);
	}
	for (const name of former) database.exec(`DROP TABLE v1_${name}`);
	for (const statement of INDEX_OF_WORDS) database.exec(statement);
	database.exec("UPDATE search_progress SET version = 0, events = 0");
}

/** Former tables that no table has its rows from, or that are used by several. */
const REMOVED: readonly string[] = [
	"unfinished_import",
	"conversation_counts",
	"tag_key_counts",
	"tag_value_counts",
	"updates_of_owners",
	"events_of_owners",
	"search_titles",
	"store_state",
	"logs",
];

function copy({ name, columns }: Table, { from, columns: own = {} }: Source): string {
	const values = Object.entries(columns).map(([column, type]) => {
		const value = own[column] ?? `o.${column}`;
		return type === "key" ? `CASE WHEN octet_length(${value}) > 256 THEN key_of(${value}) ELSE ${value} END` : value;
	});
	return `INSERT INTO ${name} (${Object.keys(columns).join()}) SELECT ${values.join()} FROM ${from}`;
}
