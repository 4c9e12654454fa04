import { audited } from "./audit.ts";
import type { LogTable } from "./sequence-log.ts";
import { insertNew, type Session } from "./session.ts";
import { columnsOf, type RowOf, readRow } from "./typed-rows.ts";
import { nullable, text } from "./values.ts";

/** A budget. Its id is unique for ever, also among budgets of the same name. Times are microseconds since the Unix epoch. */
export type BudgetRow = RowOf<"budgets">;

/** A sequence of each log. */
export type LogPositions = Readonly<Record<LogTable, bigint>>;

/** A part of both logs: after some sequences, up to others. */
export interface LogRange {
	readonly after: LogPositions;
	readonly through: LogPositions;
}

export const budgetReads = {
	/** Lists budgets by owner and name. */
	async listBudgets(
		{ all, dialect }: Session,
		{ owner }: { readonly owner: string | undefined },
	): Promise<BudgetRow[]> {
		const rows = await all(
			`SELECT * FROM ${dialect.schema}budgets ${owner === undefined ? "" : "WHERE owner = ?"} ORDER BY owner, name`,
			...(owner === undefined ? [] : [owner]),
		);
		return rows.map((row) => readRow("budgets", row));
	},
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
	createBudget: audited(async (session: Session, budget: BudgetRow): Promise<boolean> => {
		return await insertNew(session, "budgets", columnsOf("budgets", budget));
	}),
	changeBudget: audited(
		async (
			{ all, dialect }: Session,
			{ id, settings, updates, events }: Pick<BudgetRow, "id" | "settings" | "updates" | "events">,
		): Promise<boolean> => {
			const rows = await all(
				`UPDATE ${dialect.schema}budgets SET settings = ?, updates = ?, events = ? WHERE id = ? RETURNING id`,
				...[settings, updates, events, id],
			);
			return rows.length > 0;
		},
	),
	deleteBudget: audited(async ({ all, dialect }: Session, id: string): Promise<boolean> => {
		return (await all(`DELETE FROM ${dialect.schema}budgets WHERE id = ? RETURNING id`, id)).length > 0;
	}),
	/** Notes up to where a budget was compared. */
	async moveBudget(
		{ all, dialect }: Session,
		{ id, updates, events }: Pick<BudgetRow, "id" | "updates" | "events">,
	): Promise<void> {
		await all(`UPDATE ${dialect.schema}budgets SET updates = ?, events = ? WHERE id = ?`, updates, events, id);
	},
};
