import type { MessageInitShape } from "@bufbuild/protobuf";
import type { IngestConversationResponseSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { Principal } from "../access/keys.ts";
import type { CallSignal } from "../conversations/ingest/call-signal.ts";
import type { Ingest } from "../conversations/ingest/ingest.ts";

type Response = MessageInitShape<typeof IngestConversationResponseSchema>;

/** `ConversationIngestService.IngestConversation`, for the encoded request. */
export function ingestConversation(ingest: Ingest) {
	return async (request: Uint8Array, _: Principal, signal: CallSignal): Promise<Response> => {
		const { sequence, repeated, change, current } = await ingest.request(request, signal);
		return { success: true, sequence, repetition: repeated, change, current };
	};
}
