import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
	ConversationEntrySchema,
	type ListConversationsRequest,
	type ListConversationsResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Principal } from "../access/keys.ts";
import type { ListConversations, ListedConversation } from "../conversations/read/list.ts";
import { viewOptionsOf } from "./view-options.ts";

type Response = MessageInitShape<typeof ListConversationsResponseSchema>;

/** `ConversationService.ListConversations`. */
export function listConversations(handler: ListConversations) {
	return async (request: ListConversationsRequest, caller: Principal): Promise<Response> => {
		const { pageSize, pageToken, filter } = request;
		const page = await handler.list({ pageSize, pageToken, filter, ...viewOptionsOf(request, caller) });
		return { conversations: page.conversations.map(entry), nextPageToken: page.nextPageToken };
	};
}

function entry({ sequence, summary, conversation, unreadable }: ListedConversation) {
	return create(ConversationEntrySchema, {
		sequence,
		summary,
		unreadable,
		...(conversation === undefined ? {} : { conversation }),
	});
}
