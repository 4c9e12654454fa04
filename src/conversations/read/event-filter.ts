import {
	type ConversationEventFilter,
	ConversationEventFilterSchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { type EventCondition, MAX_ID_LENGTH } from "../../store/event-condition.ts";
import { conditionsOfFields, type FilterFields, invalid, timeBound, wellFormed } from "./filter.ts";

/** Maximum number of kinds, and of sources, in one filter. */
export const MAX_VALUES = 32;

const FIELDS: FilterFields<ConversationEventFilter, EventCondition> = {
	kinds: (values, name) => oneOf("kind", values, name),
	sources: (values, name) => oneOf("source", values, name),
	happenedFrom: (value, name) => (value === undefined ? [] : [{ kind: "happened", from: timeBound(value, name) }]),
	happenedTo: (value, name) => (value === undefined ? [] : [{ kind: "happened", to: timeBound(value, name) }]),
	kindsNot: (values, name) => {
		const [condition] = oneOf("kind", values, name);
		return condition?.kind === "one_of" ? [{ kind: "none_of", field: "kind", values: condition.values }] : [];
	},
	eventId(value, name) {
		if (value === "") return [];
		if ([...value].length > MAX_ID_LENGTH) throw invalid(name, `must have at most ${MAX_ID_LENGTH} characters`);
		return [{ kind: "id", value: wellFormed(value, name) }];
	},
};

/**
 * Returns the conditions of a filter of events.
 *
 * @param prefix text before the name of a field in error messages
 * @throws ServiceError `invalid_argument` that names the field, or when the filter has an unknown field
 */
export function eventConditionsOf(filter: ConversationEventFilter | undefined, prefix = "filter."): EventCondition[] {
	return conditionsOfFields(ConversationEventFilterSchema, FIELDS, filter, prefix);
}

/** Sorts the values and removes repetitions, so that equal filters have equal page tokens and share messages. */
function oneOf(field: "kind" | "source", values: readonly string[], name: string): EventCondition[] {
	if (values.length > MAX_VALUES) throw invalid(name, `must have at most ${MAX_VALUES} values`);
	if (values.length === 0) return [];
	return [{ kind: "one_of", field, values: [...new Set(values)].map((value) => wellFormed(value, name)).sort() }];
}
