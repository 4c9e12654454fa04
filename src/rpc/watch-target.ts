import {
	type WatchConversationUpdatesRequest,
	WatchPosition,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { invalid, uuid } from "../conversations/read/filter.ts";
import type { WatchStart } from "../conversations/watch/watch.ts";

/** The fields that the requests of all watches have. */
type WatchFields = Pick<WatchConversationUpdatesRequest, "start" | "conversationId">;

/**
 * Returns where a watch starts, and the only conversation that it covers; undefined for all conversations.
 *
 * @throws ServiceError `invalid_argument` for a negative sequence number, an unknown position, or an id that is no UUID
 */
export function targetOf({ start, conversationId }: WatchFields) {
	return {
		start: startOf(start),
		conversationId: conversationId === "" ? undefined : uuid(conversationId, "conversation_id"),
	};
}

/** Returns the start of a watch: `now` when the request has none. */
function startOf(start: WatchFields["start"]): WatchStart {
	if (start.case === "afterSequence") {
		if (start.value < 0n) throw invalid("after_sequence", "must not be negative");
		return start.value;
	}
	switch (start.value) {
		case undefined:
		case WatchPosition.UNSPECIFIED:
		case WatchPosition.NOW:
			return "now";
		case WatchPosition.BEGINNING:
			return "beginning";
		default:
			throw invalid("position", "is not a known position");
	}
}
