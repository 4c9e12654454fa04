import { SettledTransactions } from "../../src/store/postgres/settled.ts";
import type { Query } from "../../src/store/postgres/transaction.ts";
import { Statements } from "../../src/store/sqlite/statements.ts";

/** Keeps the texts of the statements that are prepared. */
export class RecordedStatements extends Statements {
	readonly texts: string[] = [];

	override prepare(sql: string) {
		this.texts.push(sql);
		return super.prepare(sql);
	}

	override requireTransaction(): void {}
}

/** Keeps queries for PostgreSQL, and answers them with no rows. */
export class RecordedQueries {
	readonly queries: Query[] = [];
	readonly known = new SettledTransactions();
	readonly hasSnapshot = true;
	readonly isKnownDistributed = false;

	async query(...asked: readonly Query[]) {
		this.queries.push(...asked);
		return asked.map(() => []);
	}

	async isDistributed() {
		return false;
	}
}
