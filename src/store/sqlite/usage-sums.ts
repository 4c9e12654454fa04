import { type DerivedRows, derivedRows, differenceSql, replaceSql, usageDaysSql } from "../usage-sums.ts";
import { bigint, integer } from "../values.ts";
import type { Statements } from "./statements.ts";
import { saturatingSum } from "./usage-report.ts";

export function listUsageDays(statements: Statements): bigint[] {
	return statements
		.once(usageDaysSql(""))
		.all()
		.map(({ day }) => bigint(day));
}

/** Corrects sums of usage: see `Store.correctUsageSums`. The caller has begun a transaction. */
export function correctUsageSums(statements: Statements, day: bigint | undefined): boolean {
	const correctAll = (sum: (column: string) => string) =>
		derivedRows("", day, sum).filter((rows) => correct(statements, rows)).length > 0;
	try {
		return correctAll((column) => `sum(${column})`);
	} catch (error) {
		if (!(error instanceof Error && error.message === "integer overflow")) throw error;
		return correctAll(saturatingSum);
	}
}

function correct(statements: Statements, rows: DerivedRows): boolean {
	if (integer(statements.once(differenceSql(rows)).get()?.differences) === 0) return false;
	for (const sql of replaceSql(rows)) statements.once(sql).run();
	return true;
}
