import type { WatchConversationUpdatesRequest } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Principal } from "../access/keys.ts";
import { uuid } from "../conversations/read/filter.ts";
import type { UpdateWatches } from "../conversations/watch/update-watches.ts";
import { viewOptionsOf } from "./view-options.ts";
import { watchStartOf } from "./watch-start.ts";

/** `ConversationService.WatchConversationUpdates`. */
export function watchConversationUpdates(watches: UpdateWatches) {
	return (request: WatchConversationUpdatesRequest, caller: Principal, signal: AbortSignal) => {
		const { conversationId, filter, origin } = request;
		const watched = {
			start: watchStartOf(request),
			conversationId: conversationId === "" ? undefined : uuid(conversationId, "conversation_id"),
			filter,
			origin,
			view: viewOptionsOf(request, caller),
		};
		return watches.watch(watched, signal);
	};
}
