import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import {
	ConversationEntrySchema,
	type ListConversationsRequest,
	type ListConversationsResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { ListConversations, ListedConversation } from "../conversations/read/list.ts";
import { viewOf } from "./view.ts";

type Response = MessageInitShape<typeof ListConversationsResponseSchema>;

/** `ConversationService.ListConversations`. */
export function listConversations(handler: ListConversations) {
	return async (request: ListConversationsRequest, context: HandlerContext): Promise<Response> => {
		const { pageSize, pageToken, filter } = request;
		const page = await handler.list({ pageSize, pageToken, filter, ...viewOf(request, context) });
		return { conversations: page.conversations.map(entry), nextPageToken: page.nextPageToken };
	};
}

function entry({ sequence, summary, conversation }: ListedConversation) {
	return create(ConversationEntrySchema, {
		sequence,
		summary,
		...(conversation === undefined ? {} : { conversation }),
	});
}
