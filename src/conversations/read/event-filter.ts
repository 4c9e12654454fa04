import {
	type ConversationEventFilter,
	ConversationEventFilterSchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { EventCondition } from "../../store/event-condition.ts";
import { bound, conditionsOfFields, type FilterFields, invalid, wellFormed } from "./filter.ts";

/** Most kinds, and most sources, of one filter. */
const MAX_VALUES = 32;

const FIELDS: FilterFields<ConversationEventFilter, EventCondition> = {
	kinds: (values, name) => oneOf("kind", values, name),
	sources: (values, name) => oneOf("source", values, name),
	happenedFrom: (value, name) => (value === undefined ? [] : [{ kind: "happened", from: bound(value, name) }]),
	happenedTo: (value, name) => (value === undefined ? [] : [{ kind: "happened", to: bound(value, name) }]),
};

/**
 * The conditions of a filter of events.
 *
 * @param prefix what stands before a field's name in the message of an error
 * @throws ServiceError `invalid_argument` that names the field, or for fields that only a newer release knows
 */
export function eventConditionsOf(filter: ConversationEventFilter | undefined, prefix = "filter."): EventCondition[] {
	return conditionsOfFields(ConversationEventFilterSchema, FIELDS, filter, prefix);
}

/** Sorted and without repetitions, because page tokens and shared messages hold for equal conditions. */
function oneOf(field: "kind" | "source", values: readonly string[], name: string): EventCondition[] {
	if (values.length > MAX_VALUES) throw invalid(name, `must be at most ${MAX_VALUES}`);
	if (values.length === 0) return [];
	return [{ kind: "one_of", field, values: [...new Set(values)].map((value) => wellFormed(value, name)).sort() }];
}
