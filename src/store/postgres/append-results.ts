import type { PossibleRepetition } from "../repetition.ts";
import type { Appended, AppendedEvents } from "../store.ts";
import { bigint, type Row } from "../values.ts";
import type { AppendResult } from "./group.ts";
import type { Newest } from "./log.ts";
import { PROVISIONAL } from "./numbered-sql.ts";

/** Returns the newest sequences before a group, from the result of its last statement or its row of `writers`. */
export function precedingOf(row: Row | undefined): Newest {
	return { updates: bigint(row?.first_update), events: bigint(row?.first_event) };
}

/**
 * Returns a result with the final sequences in place of provisional ones.
 *
 * @param preceding the newest sequences before the group
 */
export function finalResult(result: AppendResult, preceding: Newest | undefined): AppendResult {
	const final = (number: bigint, before: bigint | undefined) => {
		if (number <= PROVISIONAL) return number;
		if (before === undefined) throw new Error("the sequences before the group are missing");
		return before + (number - PROVISIONAL);
	};
	if (result === undefined) return undefined;
	if ("stored" in result) {
		const { newest, updateSequence } = result;
		return {
			...result,
			newest: final(newest, preceding?.events),
			updateSequence: updateSequence === undefined ? undefined : final(updateSequence, preceding?.updates),
		};
	}
	return "sequence" in result
		? { ...result, sequence: final(result.sequence, preceding?.updates) }
		: { ...result, candidateSequence: final(result.candidateSequence, preceding?.updates) };
}

/** Returns whether a result acknowledges that something is stored. */
export function isAcknowledgement(result: AppendResult): boolean {
	return result !== undefined && !("candidateSequence" in result);
}

/** Returns the newest sequences that a group added, from its results; 0 for a log that it did not add to. */
export function newestOf(results: readonly AppendResult[]): Newest {
	let [updates, events] = [0n, 0n];
	for (const result of results) {
		if (result === undefined) continue;
		if ("stored" in result) {
			events = max(events, result.newest);
			updates = max(updates, result.updateSequence ?? 0n);
		} else if ("sequence" in result && !result.repeated) updates = max(updates, result.sequence);
	}
	return { updates, events };
}

/** Narrows the result of an append to that of an update. */
export function updateResult(result: AppendResult): Appended | PossibleRepetition {
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
