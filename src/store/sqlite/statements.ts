import type { DatabaseSync, StatementSync } from "node:sqlite";

/** Statements kept; queries with many combinations of conditions make many. */
const maxStatements = 200;

/** Prepared statements by their text, each prepared once. Rows come as arrays. */
export class Statements {
	readonly #database: DatabaseSync;
	readonly #numbers = new Map<string, StatementSync>();
	readonly #bigints = new Map<string, StatementSync>();

	constructor(database: DatabaseSync) {
		this.#database = database;
	}

	/** A statement whose integers are numbers: for sequences, which stay below 2^53. */
	numbers(sql: string): StatementSync {
		return this.#prepare(this.#numbers, sql, false);
	}

	/** A statement whose integers are bigints. */
	bigints(sql: string): StatementSync {
		return this.#prepare(this.#bigints, sql, true);
	}

	#prepare(known: Map<string, StatementSync>, sql: string, readBigInts: boolean): StatementSync {
		let statement = known.get(sql);
		if (statement === undefined) {
			if (known.size >= maxStatements) known.clear();
			statement = this.#database.prepare(sql, { returnArrays: true, readBigInts });
			known.set(sql, statement);
		}
		return statement;
	}
}

/** The columns of a row that a statement of {@link Statements} returned. */
export function columnsOf(row: unknown): readonly unknown[] {
	if (!Array.isArray(row)) throw new TypeError("the statement does not return arrays");
	return row;
}
