import { ServiceError } from "../../errors.ts";
import type { PossibleDuplicate } from "../duplicates.ts";
import type { AppendedEvents } from "../event-batch.ts";
import type { AppendOutcome, AppendResult } from "../group-plan.ts";
import type { NewestSequences } from "../sequence-log.ts";

import type { Appended } from "../updates.ts";
import { bigint, type Row } from "../values.ts";
import { PROVISIONAL } from "./written-group.ts";

/** Returns the newest sequences before a group, from the result of its last statement or its row of `writers`. */
export function precedingOf(row: Row | undefined): NewestSequences {
	return { updates: bigint(row?.first_update), events: bigint(row?.first_event) };
}

/**
 * Returns an outcome with the final sequences in place of provisional ones.
 *
 * @param preceding the newest sequences before the group
 */
export function finalOutcome(outcome: AppendOutcome, preceding: NewestSequences | undefined): AppendOutcome {
	const final = (number: bigint, before: bigint | undefined) => {
		if (number <= PROVISIONAL) return number;
		if (before === undefined) throw new Error("the sequences before the group are missing");
		return before + (number - PROVISIONAL);
	};
	if (outcome === undefined || outcome instanceof ServiceError) return outcome;
	if ("stored" in outcome) {
		const { newest, updateSequence } = outcome;
		return {
			...outcome,
			newest: final(newest, preceding?.events),
			updateSequence: updateSequence === undefined ? undefined : final(updateSequence, preceding?.updates),
		};
	}
	return "sequence" in outcome
		? { ...outcome, sequence: final(outcome.sequence, preceding?.updates) }
		: { ...outcome, candidateSequence: final(outcome.candidateSequence, preceding?.updates) };
}

/** Returns whether an outcome acknowledges that something is stored. */
export function isAcknowledgement(outcome: AppendOutcome): boolean {
	return outcome !== undefined && !(outcome instanceof ServiceError) && !("candidateSequence" in outcome);
}

/** Returns the newest sequences that a group added, from its outcomes; 0 for a log that it did not add to. */
export function newestOf(outcomes: readonly AppendOutcome[]): NewestSequences {
	let [updates, events] = [0n, 0n];
	for (const outcome of outcomes) {
		if (outcome === undefined || outcome instanceof ServiceError) continue;
		if ("stored" in outcome) {
			events = max(events, outcome.newest);
			updates = max(updates, outcome.updateSequence ?? 0n);
		} else if ("sequence" in outcome && !outcome.duplicate) updates = max(updates, outcome.sequence);
	}
	return { updates, events };
}

/** Narrows the result of an append to that of an update. */
export function updateResult(result: AppendResult): Appended | PossibleDuplicate {
	if (result === undefined || "stored" in result) throw new Error("an append of an update has the result of a batch");
	return result;
}

/** Narrows the result of an append to that of a batch. */
export function batchResult(result: AppendResult): AppendedEvents | undefined {
	if (result !== undefined && !("stored" in result))
		throw new Error("an append of a batch has the result of an update");
	return result;
}

function max(one: bigint, other: bigint): bigint {
	return one > other ? one : other;
}
