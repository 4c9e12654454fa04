import { Statements } from "../../src/store/sqlite/statements.ts";

/** Keeps the texts of the statements that are prepared. */
export class RecordedStatements extends Statements {
	readonly texts: string[] = [];

	override prepare(sql: string) {
		this.texts.push(sql);
		return super.prepare(sql);
	}
}
