import type { MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import type {
	ListConversationUpdatesRequest,
	ListConversationUpdatesResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { ListConversationUpdates } from "../conversations/read/updates.ts";
import { viewOf } from "./view.ts";

type Response = MessageInitShape<typeof ListConversationUpdatesResponseSchema>;

/** `ConversationService.ListConversationUpdates`. */
export function listConversationUpdates(handler: ListConversationUpdates) {
	return async (request: ListConversationUpdatesRequest, context: HandlerContext): Promise<Response> => {
		const { conversationId, afterSequence, pageSize, pageToken } = request;
		const view = viewOf(request, context);
		const page = await handler.list({ conversationId, afterSequence, pageSize, pageToken, ...view });
		return { updates: [...page.updates], nextPageToken: page.nextPageToken };
	};
}
