import type { PossibleRepetition } from "../repetition.ts";
import type { Appended, AppendedEvents } from "../store.ts";
import { bigint, type Row } from "../values.ts";
import type { GroupAnswer } from "./group.ts";
import type { Newest } from "./log.ts";
import { PROVISIONAL } from "./numbered-sql.ts";

/** Returns the newest sequences before a group, from the result of its last statement or its row of `writers`. */
export function precedingOf(row: Row | undefined): Newest {
	return { updates: bigint(row?.first_update), events: bigint(row?.first_event) };
}

/**
 * Returns an answer with the final sequences in place of provisional ones.
 *
 * @param preceding the newest sequences before the group
 */
export function finalAnswer(answer: GroupAnswer, preceding: Newest | undefined): GroupAnswer {
	const final = (number: bigint, before: bigint | undefined) => {
		if (number <= PROVISIONAL) return number;
		if (before === undefined) throw new Error("the sequences before the group are missing");
		return before + (number - PROVISIONAL);
	};
	if (answer === undefined) return undefined;
	if ("stored" in answer) {
		const { newest, updateSequence } = answer;
		return {
			...answer,
			newest: final(newest, preceding?.events),
			updateSequence: updateSequence === undefined ? undefined : final(updateSequence, preceding?.updates),
		};
	}
	return "sequence" in answer
		? { ...answer, sequence: final(answer.sequence, preceding?.updates) }
		: { ...answer, candidateSequence: final(answer.candidateSequence, preceding?.updates) };
}

/** Returns whether an answer acknowledges that something is stored. */
export function isAcknowledgement(answer: GroupAnswer): boolean {
	return answer !== undefined && !("candidateSequence" in answer);
}

/** Returns the newest sequences that a group added, from its answers; 0 for a log that it did not add to. */
export function newestOf(answers: readonly GroupAnswer[]): Newest {
	let [updates, events] = [0n, 0n];
	for (const answer of answers) {
		if (answer === undefined) continue;
		if ("stored" in answer) {
			events = max(events, answer.newest);
			updates = max(updates, answer.updateSequence ?? 0n);
		} else if ("sequence" in answer && !answer.repeated) updates = max(updates, answer.sequence);
	}
	return { updates, events };
}

/** Narrows the answer to an append of an update. */
export function updateAnswer(answer: GroupAnswer): Appended | PossibleRepetition {
	if (answer === undefined || "stored" in answer) throw new Error("an append of an update has the result of a batch");
	return answer;
}

/** Narrows the answer to an append of a batch. */
export function batchAnswer(answer: GroupAnswer): AppendedEvents | undefined {
	if (answer !== undefined && !("stored" in answer))
		throw new Error("an append of a batch has the result of an update");
	return answer;
}

function max(one: bigint, other: bigint): bigint {
	return one > other ? one : other;
}
