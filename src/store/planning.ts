import type { MissingEvents } from "./gaps.ts";
import type { StoredRecord, Unreadable } from "./stored-record.ts";

/**
 * A plan that stops to have rows read. Thereby the rules are the same for an engine that reads at once and for one that
 * waits for its answers.
 */

/** What a plan stops for to have it read. */
export interface PlanReads {
	/** Sequences of records. */
	readonly records: readonly bigint[];
	/** Missing events that may have been pruned, or copied from the source of a fork. Alone when they are set. */
	readonly missing?: MissingEvents | undefined;
}

/** What was read for a plan. What does not exist is missing. */
export interface PlanResults {
	/** Records in their stored form, whole or a delta, by sequence. */
	readonly records: StoredRecords;
	/**
	 * Those of the missing events that are no gaps: all, if events of the conversation have been pruned. Those of a fork, if
	 * one of its sources has them, has been pruned or is not known. A source of another owner is not known.
	 */
	readonly explained?: ReadonlySet<string> | undefined;
}

/** Records in their stored form, whole or a delta, by sequence. Those that do not exist are missing. */
export type StoredRecords = ReadonlyMap<bigint, StoredRecord | Unreadable>;

/** The making of a plan, which stops to have something read. */
export type Planning<Result> = Generator<PlanReads, Result, PlanResults>;

/** Completes a plan. */
export function completePlan<Plan>(planning: Planning<Plan>, read: (reads: PlanReads) => PlanResults): Plan {
	let step = planning.next();
	while (!step.done) step = planning.next(read(step.value));
	return step.value;
}

/** Does the same as {@link completePlan} with a `read` that is asynchronous. */
export async function completePlanAsync<Plan>(
	planning: Planning<Plan>,
	read: (reads: PlanReads) => Promise<PlanResults>,
): Promise<Plan> {
	let step = planning.next();
	while (!step.done) step = planning.next(await read(step.value));
	return step.value;
}
