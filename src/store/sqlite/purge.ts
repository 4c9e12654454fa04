import type { DatabaseSync } from "node:sqlite";
import { boolean, integer } from "../values.ts";
import { isDamage } from "./result-codes.ts";
import type { Statements } from "./statements.ts";

/**
 * Removes from the files what erasures removed from the tables:
 *
 * - the words of the indexes of titles and of search. A delete only marks them, until all segments are merged into one (see
 *   https://www.sqlite.org/fts5.html#the_merge_command).
 * - copies that SQLite leaves in unused parts of pages when it moves rows between them, which `secure_delete` does not
 *   overwrite. Only VACUUM removes them; in a large database that is left to the operator.
 * - the frames of the write-ahead log.
 */

/** The indexes in which a delete only marks the words. */
const INDEXES = ["search_texts", "search_title_words", "title_trigrams"];
/** Number of pages that a step merges, of 4 KiB each. */
const PAGES = 500;
/** Maximum size in bytes of a database that is rewritten. It is in memory twice meanwhile, and appends wait. */
const MAX_REWRITTEN = 64 * 2 ** 20;
/** Milliseconds that the emptying of the log waits for readers. Appends wait meanwhile. */
const LOG_TIMEOUT = 250;

/** Notes that there is something to remove. The caller has begun a transaction. */
export function mustPurge(statements: Statements): void {
	statements.prepare("UPDATE state SET must_purge = 1").run();
}

/** Removes what is left of erasures in small steps. */
export class Purge {
	readonly #database: DatabaseSync;
	readonly #lockTimeout: number;
	/** Indexes that are not yet merged, and whether the merge of the first has begun. */
	#indexes: readonly string[] = [];
	#hasBegun = false;
	#isRewritten = false;
	/** Why the database could not be rewritten: a page of it is damaged. */
	#damage: Error | undefined;
	#must: boolean;

	/** @param lockTimeout milliseconds that statements wait for a lock */
	constructor(database: DatabaseSync, lockTimeout: number) {
		this.#database = database;
		this.#lockTimeout = lockTimeout;
		this.#must = boolean(database.prepare("SELECT must_purge FROM state").get()?.must_purge);
		if (this.#must) this.restart();
	}

	/** Begins anew, after an erasure. */
	restart(): void {
		this.#must = true;
		[this.#indexes, this.#hasBegun, this.#isRewritten] = [INDEXES, false, false];
		this.#damage = undefined;
	}

	/**
	 * Does a step, outside of a transaction.
	 *
	 * @returns whether there is another one to do now. Without one, all is done, or a reader keeps the log: a later call
	 *   tries again
	 * @throws Error of SQLite; when all else is done, the one of a rewrite that damaged pages prevent. The next start tries
	 *   it again
	 */
	step(): boolean {
		if (!this.#must) {
			if (this.#damage !== undefined) throw this.#damage;
			return false;
		}
		const [index, ...others] = this.#indexes;
		if (index !== undefined) {
			// The first call lets the following ones merge all segments into one.
			this.#hasBegun = this.#merge(index, this.#hasBegun ? PAGES : -PAGES);
			if (!this.#hasBegun) this.#indexes = others;
			return true;
		}
		if (!this.#isRewritten) {
			try {
				this.#rewrite();
			} catch (error) {
				if (!isDamage(error)) throw error;
				this.#damage = error;
			}
			this.#isRewritten = true;
			return true;
		}
		if (!this.#emptyLog()) return false;
		if (this.#damage === undefined) this.#database.exec("UPDATE state SET must_purge = 0");
		this.#must = false;
		// The next call says why not all is done.
		return this.#damage !== undefined;
	}

	/** Merges segments of an index. Returns whether there was something to merge. */
	#merge(index: string, pages: number): boolean {
		const before = this.#changes();
		this.#database.prepare(`INSERT INTO ${index} (${index}, rank) VALUES ('merge', ?)`).run(pages);
		return this.#changes() - before > 1;
	}

	#changes(): number {
		return integer(this.#database.prepare("SELECT total_changes() AS changes").get()?.changes);
	}

	#rewrite(): void {
		const size = this.#pragma("page_count") * this.#pragma("page_size");
		if (size > MAX_REWRITTEN) return;
		// The folder for temporary files may be full, or not writable.
		this.#database.exec("PRAGMA temp_store = MEMORY");
		try {
			this.#database.exec("VACUUM");
		} finally {
			this.#database.exec("PRAGMA temp_store = DEFAULT");
		}
	}

	#pragma(name: "page_count" | "page_size"): number {
		return integer(this.#database.prepare(`PRAGMA ${name}`).get()?.[name]);
	}

	/** Returns whether it succeeded. It does not while a backup or an export reads the database. */
	#emptyLog(): boolean {
		this.#database.exec(`PRAGMA busy_timeout = ${LOG_TIMEOUT}`);
		try {
			return this.#database.prepare("PRAGMA wal_checkpoint(TRUNCATE)").get()?.busy === 0n;
		} finally {
			this.#database.exec(`PRAGMA busy_timeout = ${this.#lockTimeout}`);
		}
	}
}
