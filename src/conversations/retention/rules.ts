import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { fromMicroseconds } from "../../record/json/scalars.ts";
import type { Store } from "../../store/store.ts";
import { conditionsOf } from "../read/filter.ts";
import { daysBefore, type RetentionStep } from "./retention.ts";

/** Maximum number of updates and events that a step removes. */
const STEP = 200;

/** A rule by which conversations are removed as a whole. */
export interface RetentionRule {
	/** As it is written in the configuration, such as `tag:env=dev`. */
	readonly name: string;
	/** Which conversations. */
	readonly filter: Pick<MessageInitShape<typeof ConversationFilterSchema>, "owner" | "tagKey" | "tags">;
	/** Days without activity after which they are removed. */
	readonly days: number;
}

/**
 * Returns the filter of the conversations that a rule removes.
 *
 * @param now microseconds since the Unix epoch
 */
export function dueBy({ filter, days }: RetentionRule, now: bigint): ConversationFilter {
	return create(ConversationFilterSchema, { ...filter, activityTo: fromMicroseconds(daysBefore(now, days)) });
}

/** Returns the steps that remove conversations by rules. */
export function stepsOf(
	store: Pick<Store, "pruneConversations">,
	rules: readonly RetentionRule[],
): readonly RetentionStep[] {
	return rules.map((rule) => (now) => store.pruneConversations(conditionsOf(dueBy(rule, now)), STEP));
}
