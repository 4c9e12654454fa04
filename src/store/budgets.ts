import { audited } from "./access.ts";
import type { LogTable, NewestSequences } from "./sequence-log.ts";
import type { Session } from "./session.ts";
import { changeRows, insertNew, type RowOf, removeRows, selectRows } from "./typed-rows.ts";
import { nullable, text } from "./values.ts";

/** A budget. Its id is unique for ever, also among budgets of the same name. Times are microseconds since the Unix epoch. */
export type BudgetRow = RowOf<"budgets">;

/** A part of both logs: after some sequences, up to others. */
export interface LogRange {
	readonly after: NewestSequences;
	readonly through: NewestSequences;
}

export const budgetReads = {
	/** Lists budgets by owner and name. */
	listBudgets: (session: Session, { owner }: { readonly owner: string | undefined }): Promise<BudgetRow[]> =>
		selectRows(session, "budgets", [["owner = ?", owner]], "owner, name"),
	/** Returns the ids of the conversations that have entries in a part of the logs. */
	async listChanged({ all, dialect }: Session, { after, through }: LogRange): Promise<string[]> {
		const of = (log: LogTable) => `
			SELECT conversation_id AS id FROM ${dialect.schema}${log} WHERE sequence > ? AND sequence <= ?
		`;
		const rows = await all(
			`${of("updates")} UNION ${of("events")}`,
			...[after.updates, through.updates, after.events, through.events],
		);
		return rows.map((row) => text(row.id));
	},
	/** Returns those of some conversations whose newest events, more than a number, came without a new leaf. */
	async listStalled(
		{ all, isIn, dialect }: Session,
		{ ids, events }: { readonly ids: readonly string[]; readonly events: number },
	): Promise<{ readonly conversationId: string; readonly leaf: string }[]> {
		const { schema } = dialect;
		const rows = await all(
			`SELECT a.conversation_id, a.leaf FROM ${schema}activities a
			WHERE ${isIn("a.conversation_id")} AND ? < (
				SELECT count(*) FROM (
					SELECT e.happened_at FROM ${schema}events e WHERE e.conversation_id = a.conversation_id
					ORDER BY e.sequence DESC LIMIT ?
				) newest WHERE newest.happened_at > coalesce(a.leaf_at, 0)
			)`,
			...[ids, events, events + 1],
		);
		return rows.map((row) => ({ conversationId: text(row.conversation_id), leaf: nullable(text, row.leaf) ?? "" }));
	},
};

export const budgetWrites = {
	/** Stores a budget, unless its owner has one of this name. Returns whether it was stored. */
	createBudget: audited((session: Session, budget: BudgetRow) => insertNew(session, "budgets", budget)),
	changeBudget: audited(
		(session: Session, { id, ...changes }: Pick<BudgetRow, "id" | "settings" | "updates" | "events">) =>
			changeRows(session, "budgets", { id }, changes),
	),
	deleteBudget: audited((session: Session, id: string) => removeRows(session, "budgets", { id })),
	/** Notes up to where a budget was compared. */
	async moveBudget(session: Session, { id, ...moved }: Pick<BudgetRow, "id" | "updates" | "events">): Promise<void> {
		await changeRows(session, "budgets", { id }, moved);
	},
};
