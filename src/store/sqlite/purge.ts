import type { DatabaseSync } from "node:sqlite";
import { boolean, integer } from "../values.ts";
import type { Statements } from "./sql.ts";

/**
 * Removes from the files what erasures removed from the tables:
 *
 * - the words of the index of search. A delete only marks them, until all segments are merged into one (see
 *   https://www.sqlite.org/fts5.html#the_merge_command).
 * - copies that SQLite leaves in unused parts of pages when it moves rows between them, which `secure_delete` does not
 *   overwrite. Only VACUUM removes them; in a large database that is left to the operator.
 * - the frames of the write-ahead log.
 */

/** Number of pages that a step merges, of 4 KiB each. */
const PAGES = 500;
/** Maximum size in bytes of a database that is rewritten. It is in memory twice meanwhile, and appends wait. */
const MAX_REWRITTEN = 64 * 2 ** 20;
/** Milliseconds that the emptying of the log waits for readers. Appends wait meanwhile. */
const LOG_TIMEOUT = 250;

/** Notes that there is something to remove. The caller has begun a transaction. */
export function notePurge(statements: Statements): void {
	statements.prepare("UPDATE state SET must_purge = 1").run();
}

/** Returns whether something was noted that is not removed yet. */
export function mustPurge(database: DatabaseSync): boolean {
	return boolean(database.prepare("SELECT must_purge FROM state").get()?.must_purge);
}

/**
 * Removes what is left of erasures in small steps, outside of transactions.
 *
 * @param lockTimeout milliseconds that statements wait for a lock
 * @yields whether there is another step to do now. Without one, a reader keeps the log: a later call tries again
 * @throws Error of SQLite. The one of a rewrite that damaged pages prevent comes when all else is done
 */
export function* purge(database: DatabaseSync, lockTimeout: number): Generator<boolean, false> {
	const merge = (pages: number) => {
		const before = totalChanges(database);
		database.prepare("INSERT INTO search_texts (search_texts, rank) VALUES ('merge', ?)").run(pages);
		return totalChanges(database) - before > 1;
	};
	// The first call lets the following ones merge all segments into one.
	for (let pages = -PAGES; merge(pages); pages = PAGES) yield true;
	let failure: unknown;
	try {
		rewrite(database);
	} catch (error) {
		failure = error;
	}
	yield true;
	while (!emptyLog(database, lockTimeout)) yield false;
	if (failure !== undefined) throw failure;
	database.exec("UPDATE state SET must_purge = 0");
	return false;
}

function totalChanges(database: DatabaseSync): number {
	return integer(database.prepare("SELECT total_changes() AS changes").get()?.changes);
}

/** Rewrites a database that is not too large. */
function rewrite(database: DatabaseSync): void {
	const pragma = (name: "page_count" | "page_size") => integer(database.prepare(`PRAGMA ${name}`).get()?.[name]);
	if (pragma("page_count") * pragma("page_size") > MAX_REWRITTEN) return;
	// The folder for temporary files may be full, or not writable.
	database.exec("PRAGMA temp_store = MEMORY");
	try {
		database.exec("VACUUM");
	} finally {
		database.exec("PRAGMA temp_store = DEFAULT");
	}
}

/** Returns whether it succeeded. It does not while a backup or an export reads the database. */
function emptyLog(database: DatabaseSync, lockTimeout: number): boolean {
	database.exec(`PRAGMA busy_timeout = ${LOG_TIMEOUT}`);
	try {
		return database.prepare("PRAGMA wal_checkpoint(TRUNCATE)").get()?.busy === 0n;
	} finally {
		database.exec(`PRAGMA busy_timeout = ${lockTimeout}`);
	}
}
