import { create, type JsonObject } from "@bufbuild/protobuf";
import {
	type IngestConversationRequest,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { object } from "./fixtures.ts";

const format = new RecordFormat();

/** Converts a valid record in JSON to its message, with defaults filled in. */
export function recordMessage(json: JsonObject): ConversationInfo {
	return format.fromJson(json);
}

/** Converts a record to its JSON form. */
export function recordJson(record: ConversationInfo): JsonObject {
	return object(format.toJson(record));
}

/** Returns the request that ingests a valid JSON record over gRPC. */
export function ingestRequest(json: JsonObject): IngestConversationRequest {
	return create(IngestConversationRequestSchema, { conversation: recordMessage(json) });
}
