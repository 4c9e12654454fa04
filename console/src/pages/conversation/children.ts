import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { ConversationSummary } from "../../../../gen/conversations/v1/summary_pb.js";
import { objectOf, textOf } from "./parts.ts";
import { lookOfStep, type Step } from "./steps.ts";
import { STARTS_CHILDREN } from "./tools.ts";

/** Milliseconds by which clocks of one agent server may seem to differ. */
const TOLERANCE = 1_000;

/**
 * Returns which step began which conversations: the step whose result names it, else the last step before it that
 * begins conversations.
 *
 * @returns ids by the id of the step
 */
export function childrenOfSteps(
	steps: readonly Step[],
	children: readonly ConversationSummary[],
): ReadonlyMap<string, readonly string[]> {
	const starts = steps.filter(({ events: [first] }) =>
		STARTS_CHILDREN.has(textOf(objectOf(first?.members.action)?.kind)),
	);
	const found = new Map<string, readonly string[]>();
	const named = new Set<string>();
	const add = (step: Step, id: string): void => {
		found.set(step.id, [...(found.get(step.id) ?? []), id]);
		named.add(id);
	};
	for (const step of starts) for (const id of lookOfStep(step).children) add(step, id);
	for (const { id, createdAt } of children) {
		if (named.has(id) || createdAt === undefined) continue;
		const time = timestampDate(createdAt).getTime() + TOLERANCE;
		const step = starts.findLast((one) => one.time <= time);
		if (step !== undefined) add(step, id);
	}
	return found;
}
