import type { DatabaseSync, StatementSync } from "node:sqlite";

/** Most statements that are kept; lists with many combinations of conditions make many. */
const MAX_STATEMENTS = 200;

/** Prepared statements by their text, each prepared once. */
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
}
