import { type Query, Spread } from "../../src/store/postgres/transaction.ts";
import { Statements } from "../../src/store/sqlite/sql.ts";

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
	readonly spread = new Spread(async () => false);
	readonly hasSnapshot = true;

	async query(...asked: readonly Query[]) {
		this.queries.push(...asked);
		return asked.map(() => []);
	}
}
