import {
	type ConversationGap,
	ConversationGapKind,
} from "../../../../gen/conversations/v1/conversation_gap_service_pb.js";
import type { StepList } from "./step-list.ts";
import type { Step } from "./steps.ts";

/** The place of a gap in the timeline: before or after a step. */
export interface GapPlace {
	readonly gap: ConversationGap;
	readonly step: Step;
	readonly isBefore: boolean;
}

/** Returns the places of the missing events. A gap is left out whose place is not known, or whose step is not loaded. */
export function gapPlacesOf(gaps: readonly ConversationGap[], list: StepList): ReadonlyMap<ConversationGap, GapPlace> {
	const places = new Map<ConversationGap, GapPlace>();
	for (const gap of gaps) {
		if (gap.missingEventId === "") continue;
		const child = list.stepAfter(gap.missingEventId);
		const isLeaf = gap.kind === ConversationGapKind.MISSING_LEAF;
		const step = child ?? list.stepWith(gap.afterEventId) ?? (isLeaf ? list.steps.at(-1) : undefined);
		if (step !== undefined) places.set(gap, { gap, step, isBefore: child !== undefined });
	}
	return places;
}
