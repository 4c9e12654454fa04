import type { MessageInitShape } from "@bufbuild/protobuf";
import type { IngestConversationEventsResponseSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import type { Principal } from "../access/keys.ts";
import type { CallSignal } from "../conversations/ingest/call-signal.ts";
import type { EventIngest } from "../conversations/ingest/event-ingest.ts";

type Response = MessageInitShape<typeof IngestConversationEventsResponseSchema>;

/** `ConversationEventIngestService.IngestConversationEvents`, for the encoded request. */
export function ingestConversationEvents(ingest: Pick<EventIngest, "request">) {
	return async (request: Uint8Array, _: Principal, signal: CallSignal): Promise<Response> => {
		const { stored, updateSequence } = await ingest.request(request, signal);
		return { success: true, stored, updateSequence: updateSequence ?? 0n };
	};
}
