import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { HandlerContext } from "@connectrpc/connect";
import {
	type GetConversationRequest,
	type GetConversationResponse,
	GetConversationResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { FoundConversation, GetConversation } from "../conversations/read/get.ts";
import { fromMicroseconds } from "../record/json/scalars.ts";
import { keepEncodedResponse, takesEncodedResponses } from "./method.ts";
import { secretsOf } from "./view.ts";

type Response = MessageInitShape<typeof GetConversationResponseSchema>;

/** `ConversationService.GetConversation`. */
export function getConversation(handler: GetConversation) {
	return async (request: GetConversationRequest, context: HandlerContext): Promise<Response> => {
		const { id, sequence } = request;
		const asked = { id, sequence, secrets: secretsOf(request.secrets, context) };
		if (takesEncodedResponses(context)) return encode(await handler.getEncoded(asked));
		const found = await handler.get(asked);
		return { ...found, receivedAt: fromMicroseconds(found.receivedAt) };
	};
}

/** The record is not decoded: its field is written around it, and the other fields behind it. */
function encode(found: FoundConversation<Uint8Array>): GetConversationResponse {
	const { conversation, sequence, receivedAt } = found;
	const { number } = GetConversationResponseSchema.field.conversation;
	const head = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(conversation.byteLength).finish();
	const rest = create(GetConversationResponseSchema, { sequence, receivedAt: fromMicroseconds(receivedAt) });
	const response = create(GetConversationResponseSchema);
	keepEncodedResponse(response, [head, conversation, toBinary(GetConversationResponseSchema, rest)]);
	return response;
}
