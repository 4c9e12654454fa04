import type { MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import type {
	GetConversationRequest,
	GetConversationResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { GetConversation } from "../conversations/get.ts";
import { fromMicroseconds } from "../record/scalars.ts";
import { secretsOf } from "./view.ts";

type Response = MessageInitShape<typeof GetConversationResponseSchema>;

/** `ConversationService.GetConversation`. */
export function getConversation(handler: GetConversation) {
	return async (request: GetConversationRequest, context: HandlerContext): Promise<Response> => {
		const { id, sequence } = request;
		const found = await handler.get({ id, sequence, secrets: secretsOf(request.secrets, context) });
		return { ...found, receivedAt: fromMicroseconds(found.receivedAt) };
	};
}
