import type { PossibleRepetition } from "../repetition.ts";
import type { Appended, AppendedEvents } from "../store.ts";
import { bigint, type Row } from "../values.ts";
import type { GroupAnswer } from "./group.ts";
import type { Newest } from "./log.ts";
import { PROVISIONAL } from "./numbered-sql.ts";

/** The numbers before those of a group, from the row that its last statement or its writer has. */
export function firstOf(row: Row | undefined): Newest {
	return { updates: bigint(row?.first_update), events: bigint(row?.first_event) };
}

/**
 * An answer with the numbers that were taken.
 *
 * @param first the numbers that those of the group follow
 */
export function realAnswer(answer: GroupAnswer, first: Newest | undefined): GroupAnswer {
	const real = (number: bigint, before: bigint | undefined) => {
		if (number <= PROVISIONAL) return number;
		if (before === undefined) throw new Error("the numbers of a group are missing");
		return before + (number - PROVISIONAL);
	};
	if (answer === undefined) return undefined;
	if ("stored" in answer) {
		const { newest, updateSequence } = answer;
		return {
			...answer,
			newest: real(newest, first?.events),
			updateSequence: updateSequence === undefined ? undefined : real(updateSequence, first?.updates),
		};
	}
	return "sequence" in answer
		? { ...answer, sequence: real(answer.sequence, first?.updates) }
		: { ...answer, possiblyRepeats: real(answer.possiblyRepeats, first?.updates) };
}

/** Whether an answer says that something is stored. */
export function isAcknowledgement(answer: GroupAnswer): boolean {
	return answer !== undefined && !("possiblyRepeats" in answer);
}

/** The newest sequences that a group added, by its answers; 0 for a log that it did not add to. */
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

/** What an append of an update is answered. */
export function updateAnswer(answer: GroupAnswer): Appended | PossibleRepetition {
	if (answer === undefined || "stored" in answer) throw new Error("an update has another answer than a batch");
	return answer;
}

/** What an append of a batch is answered. */
export function batchAnswer(answer: GroupAnswer): AppendedEvents | undefined {
	if (answer !== undefined && !("stored" in answer)) throw new Error("a batch has another answer than an update");
	return answer;
}

function max(one: bigint, other: bigint): bigint {
	return one > other ? one : other;
}
