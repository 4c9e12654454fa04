import {
	type WatchConversationUpdatesRequest,
	WatchPosition,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { invalid, uuid } from "../conversations/read/filter.ts";
import type { WatchStart } from "../conversations/watch/watch.ts";

/** What the requests of all watches have. */
type WatchRequest = Pick<WatchConversationUpdatesRequest, "start" | "conversationId">;

/**
 * Where a watch starts, and the only conversation that it is about.
 *
 * @throws ServiceError `invalid_argument` for a negative sequence number, a position that is not known, or an id that is
 *   no UUID
 */
export function watchedOf({ start, conversationId }: WatchRequest) {
	return {
		start: startOf(start),
		conversationId: conversationId === "" ? undefined : uuid(conversationId, "conversation_id"),
	};
}

/** The start of a watch: now when the request says nothing. */
function startOf(start: WatchRequest["start"]): WatchStart {
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
