import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
	IngestConversationRequest,
	IngestConversationResponseSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { CHANGES } from "../conversations/change.ts";
import type { Ingest } from "../conversations/ingest.ts";
import { ServiceError } from "../errors.ts";
import type { RecordFormat } from "../record/record.ts";

type Response = MessageInitShape<typeof IngestConversationResponseSchema>;

/** `ConversationIngestService.IngestConversation`. */
export function ingestConversation(format: RecordFormat, ingest: Ingest) {
	return async (request: IngestConversationRequest): Promise<Response> => {
		if (request.conversation === undefined)
			throw new ServiceError("invalid_record", "the request has no conversation", {
				violations: [{ path: [], type: "missing", message: "Field required" }],
			});
		const { sequence, repeated, change, current } = await ingest.ingest(format.fromMessage(request.conversation));
		return { success: true, sequence, repetition: repeated, change: CHANGES[change], current };
	};
}
