import type { WatchConversationEventsRequest } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import type { Principal } from "../access/keys.ts";
import { uuid } from "../conversations/read/filter.ts";
import type { EventWatches } from "../conversations/watch/event-watches.ts";
import { secretsFormOf } from "./view-options.ts";
import { watchStartOf } from "./watch-start.ts";

/** `ConversationEventService.WatchConversationEvents`. */
export function watchConversationEvents(watches: EventWatches) {
	return (request: WatchConversationEventsRequest, caller: Principal, signal: AbortSignal) => {
		const { conversationId, filter, secrets } = request;
		const watched = {
			start: watchStartOf(request),
			conversationId: conversationId === "" ? undefined : uuid(conversationId, "conversation_id"),
			filter,
			secrets: secretsFormOf(secrets, caller),
		};
		return watches.watch(watched, signal);
	};
}
