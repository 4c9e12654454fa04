import type { MessageInitShape } from "@bufbuild/protobuf";
import type { IngestConversationResponseSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { Ingest } from "../conversations/ingest/ingest.ts";

type Response = MessageInitShape<typeof IngestConversationResponseSchema>;

/** `ConversationIngestService.IngestConversation`, for the encoded request. */
export function ingestConversation(ingest: Ingest) {
	return async (request: Uint8Array): Promise<Response> => {
		const { sequence, repeated, change, current } = await ingest.request(request);
		return { success: true, sequence, repetition: repeated, change, current };
	};
}
