import { ConversationEventIngestService } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { rpcPath } from "../access/gate.ts";
import type { PostForm } from "../store/refused-posts.ts";
import { EVENT_WEBHOOK_PATH, WEBHOOK_PATH } from "./webhook/webhook.ts";

/** Returns the paths of the routes and RPCs by which posts arrive. */
export function postRoutes(basePath: string): Readonly<Record<PostForm, string>> {
	return {
		record_json: `${basePath}${WEBHOOK_PATH}`,
		events_json: `${basePath}${EVENT_WEBHOOK_PATH}/{id}`,
		record_message: rpcPath(ConversationIngestService.method.ingestConversation),
		events_message: rpcPath(ConversationEventIngestService.method.ingestConversationEvents),
	};
}
