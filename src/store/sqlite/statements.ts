import type { DatabaseSync, StatementSync } from "node:sqlite";

/** Maximum number of cached statements. Lists need one for each combination of conditions. */
const MAX_STATEMENTS = 200;

/** Cache of prepared statements by their SQL text. */
export class Statements {
	readonly #database: DatabaseSync;
	readonly #prepared = new Map<string, StatementSync>();

	constructor(database: DatabaseSync) {
		this.#database = database;
	}

	prepare(sql: string): StatementSync {
		let statement = this.#prepared.get(sql);
		if (statement === undefined) {
			if (this.#prepared.size >= MAX_STATEMENTS) this.#prepared.clear();
			statement = this.#database.prepare(sql);
			this.#prepared.set(sql, statement);
		}
		return statement;
	}

	/** Prepares a statement whose text is not used again. */
	once(sql: string): StatementSync {
		return this.#database.prepare(sql);
	}
}
