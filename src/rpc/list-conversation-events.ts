import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
	ListConversationEventsRequest,
	ListConversationEventsResponseSchema,
} from "../../gen/conversations/v1/conversation_event_service_pb.js";
import type { Principal } from "../access/keys.ts";
import type { ListConversationEvents } from "../conversations/read/events.ts";
import { secretsFormOf } from "./view-options.ts";

type Response = MessageInitShape<typeof ListConversationEventsResponseSchema>;

/** `ConversationEventService.ListConversationEvents`. */
export function listConversationEvents(handler: ListConversationEvents) {
	return async (request: ListConversationEventsRequest, caller: Principal): Promise<Response> => {
		const { conversationId, filter, afterSequence, pageSize, pageToken } = request;
		const secrets = secretsFormOf(request.secrets, caller);
		const page = await handler.list({ conversationId, filter, afterSequence, pageSize, pageToken, secrets });
		return { events: [...page.entries], nextPageToken: page.nextPageToken };
	};
}
