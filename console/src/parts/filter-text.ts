import { fromJsonString, toJsonString } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";

/** Filters of conversations as people write them: in JSON. */

/** Returns the JSON of a filter; nothing for one that all conversations meet. */
export function filterText(filter: ConversationFilter | undefined): string {
	const text = filter === undefined ? "" : toJsonString(ConversationFilterSchema, filter);
	return text === "{}" ? "" : text;
}

/** A filter that cannot be read, with what is wrong with it. */
export class FilterError extends Error {}

/**
 * Reads a filter; undefined for an empty text.
 *
 * @throws {FilterError} if the text is not the JSON of a filter.
 */
export function parsedFilter(text: string): ConversationFilter | undefined {
	if (text.trim() === "") return undefined;
	try {
		return fromJsonString(ConversationFilterSchema, text);
	} catch (error) {
		throw new FilterError(`The filter: ${error instanceof Error ? error.message : String(error)}`);
	}
}
