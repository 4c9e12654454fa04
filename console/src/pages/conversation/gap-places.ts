import {
	type ConversationGap,
	ConversationGapKind,
} from "../../../../gen/conversations/v1/conversation_gap_service_pb.js";
import type { Step } from "./steps.ts";

/** The place of a gap in the timeline: before or after a step. */
export interface GapPlace {
	readonly gap: ConversationGap;
	readonly step: Step;
	readonly isBefore: boolean;
}

/** Returns the places of the missing events. A gap is left out whose place is not known, or whose step is not loaded. */
export function gapPlacesOf(gaps: readonly ConversationGap[], steps: readonly Step[]): readonly GapPlace[] {
	if (gaps.length === 0) return [];
	const byEvent = new Map<string, Step>();
	const byParent = new Map<string, Step>();
	for (const step of steps)
		for (const { id, parentId } of step.events) {
			byEvent.set(id, step);
			if (parentId !== undefined && !byParent.has(parentId)) byParent.set(parentId, step);
		}
	return gaps.flatMap((gap): readonly GapPlace[] => {
		if (gap.missingEventId === "") return [];
		const child = byParent.get(gap.missingEventId);
		if (child !== undefined) return [{ gap, step: child, isBefore: true }];
		const isLeaf = gap.kind === ConversationGapKind.MISSING_LEAF;
		const before = byEvent.get(gap.afterEventId) ?? (isLeaf ? steps.at(-1) : undefined);
		return before === undefined ? [] : [{ gap, step: before, isBefore: false }];
	});
}
