import { ConversationEventIngestService } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { rpcPath } from "../access/gate.ts";
import type { PostForm } from "../store/refused-posts.ts";
import { EVENT_WEBHOOK_PATH, WEBHOOK_PATH } from "./webhook/webhook.ts";

/** Returns the forms of what is posted, by the paths of routes and RPCs. */
export function postFormsByRoute(basePath: string): ReadonlyMap<string, PostForm> {
	return new Map<string, PostForm>([
		[`${basePath}${WEBHOOK_PATH}`, "record_json"],
		[`${basePath}${EVENT_WEBHOOK_PATH}/{id}`, "events_json"],
		[rpcPath(ConversationIngestService.method.ingestConversation), "record_message"],
		[rpcPath(ConversationEventIngestService.method.ingestConversationEvents), "events_message"],
	]);
}
