import { type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
	type IngestConversationRequest,
	IngestConversationRequestSchema,
	type IngestConversationResponseSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { Ingest } from "../conversations/ingest/ingest.ts";
import { encodedRequest } from "./method.ts";

type Response = MessageInitShape<typeof IngestConversationResponseSchema>;

/** `ConversationIngestService.IngestConversation`. */
export function ingestConversation(ingest: Ingest) {
	return async (request: IngestConversationRequest): Promise<Response> => {
		const encoded = encodedRequest(request) ?? toBinary(IngestConversationRequestSchema, request);
		const { sequence, repeated, change, current } = await ingest.request(encoded);
		return { success: true, sequence, repetition: repeated, change, current };
	};
}
