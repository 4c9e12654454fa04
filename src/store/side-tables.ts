import { auditReads, auditWrites } from "./audit.ts";
import { budgetReads, budgetWrites } from "./budgets.ts";
import { forwardingReads, forwardingWrites, REPEATABLE_WRITES } from "./forwarding.ts";
import type { SessionCalls } from "./session-calls.ts";

/**
 * Tables beside the logs, for what the service does with what it keeps. Their operations are written once for both engines.
 */
export interface SideTables {
	readonly read: SessionCalls<typeof sideReads>;
	/** A change resolves when it is on disk, except those of {@link isRepeatable}. */
	readonly write: SessionCalls<typeof sideWrites>;
}

export const sideReads = { ...auditReads, ...budgetReads, ...forwardingReads };
export const sideWrites = { ...auditWrites, ...budgetWrites, ...forwardingWrites };

const MOVE_BUDGET: keyof typeof budgetWrites = "moveBudget";

/** Whether a write need not be on disk before the answer, because it is done again after a crash. */
export function isRepeatable(write: string): boolean {
	return REPEATABLE_WRITES.has(write) || write === MOVE_BUDGET;
}
