import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import {
	type GetConversationRequest,
	GetConversationResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Principal } from "../access/keys.ts";
import type { GetConversation } from "../conversations/read/get.ts";
import { fromMicroseconds } from "../record/json/scalars.ts";
import { secretsFormOf } from "./view-options.ts";

type Response = MessageInitShape<typeof GetConversationResponseSchema>;

/** `ConversationService.GetConversation`. */
export function getConversation(handler: GetConversation) {
	return async ({ id, sequence, secrets }: GetConversationRequest, caller: Principal): Promise<Response> => {
		const found = await handler.get({ id, sequence, secrets: secretsFormOf(secrets, caller) });
		return { ...found, receivedAt: fromMicroseconds(found.receivedAt) };
	};
}

/** `ConversationService.GetConversation` with an encoded response. The stored record need not be decoded for it. */
export function getEncodedConversation(handler: GetConversation) {
	return async ({ id, sequence, secrets }: GetConversationRequest, caller: Principal): Promise<Uint8Array> => {
		const found = await handler.getEncoded({ id, sequence, secrets: secretsFormOf(secrets, caller) });
		const others = create(GetConversationResponseSchema, {
			sequence: found.sequence,
			receivedAt: fromMicroseconds(found.receivedAt),
		});
		const head = new BinaryWriter()
			.tag(GetConversationResponseSchema.field.conversation.number, WireType.LengthDelimited)
			.uint32(found.conversation.byteLength)
			.finish();
		// The fields of a message may stand in any order. One copy: a BinaryWriter would grow and copy several times.
		return Buffer.concat([head, found.conversation, toBinary(GetConversationResponseSchema, others)]);
	};
}
