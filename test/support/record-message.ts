import { create, type JsonObject } from "@bufbuild/protobuf";
import {
	type IngestConversationRequest,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { object } from "./fixtures.ts";

const format = new RecordFormat();

/** The message of a valid record in JSON, with its defaults filled in. */
export function recordMessage(json: JsonObject): ConversationInfo {
	return format.fromJson(json);
}

/** The JSON form of a record. */
export function recordJson(record: ConversationInfo): JsonObject {
	return object(format.toJson(record));
}

/** The request that ingests a valid record in JSON over gRPC. */
export function ingestRequest(json: JsonObject): IngestConversationRequest {
	return create(IngestConversationRequestSchema, { conversation: recordMessage(json) });
}
