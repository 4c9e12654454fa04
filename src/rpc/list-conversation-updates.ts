import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
	ListConversationUpdatesRequest,
	ListConversationUpdatesResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Principal } from "../access/keys.ts";
import type { ListConversationUpdates } from "../conversations/read/updates.ts";
import { viewOptionsOf } from "./view-options.ts";

type Response = MessageInitShape<typeof ListConversationUpdatesResponseSchema>;

/** `ConversationService.ListConversationUpdates`. */
export function listConversationUpdates(handler: ListConversationUpdates) {
	return async (request: ListConversationUpdatesRequest, caller: Principal): Promise<Response> => {
		const { conversationId, afterSequence, pageSize, pageToken, origin } = request;
		const view = viewOptionsOf(request, caller);
		const page = await handler.list({ conversationId, afterSequence, pageSize, pageToken, origin, ...view });
		return { updates: [...page.updates], nextPageToken: page.nextPageToken };
	};
}
