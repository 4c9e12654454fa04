import type { DescService } from "@bufbuild/protobuf";
import { ConversationEventIngestService } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationEventService } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { EventIngest } from "../conversations/ingest/event-ingest.ts";
import type { Ingest } from "../conversations/ingest/ingest.ts";
import type { ListConversationEvents } from "../conversations/read/events.ts";
import type { GetConversation } from "../conversations/read/get.ts";
import type { ListConversations } from "../conversations/read/list.ts";
import type { ListConversationUpdates } from "../conversations/read/updates.ts";
import type { EventWatches } from "../conversations/watch/event-watches.ts";
import type { UpdateWatches } from "../conversations/watch/update-watches.ts";
import { getConversation, getEncodedConversation } from "./get-conversation.ts";
import { ingestConversation } from "./ingest-conversation.ts";
import { ingestConversationEvents } from "./ingest-conversation-events.ts";
import { listConversationEvents } from "./list-conversation-events.ts";
import { listConversationUpdates } from "./list-conversation-updates.ts";
import { listConversations } from "./list-conversations.ts";
import { type RpcMethod, serverStream, unary, unaryUndecoded } from "./rpc-method.ts";
import { watchConversationEvents } from "./watch-conversation-events.ts";
import { watchConversationUpdates } from "./watch-conversation-updates.ts";

/** All RPC services of the program. */
export const SERVICES: readonly DescService[] = [
	ConversationIngestService,
	ConversationEventIngestService,
	ConversationService,
	ConversationEventService,
];

/** What the methods work with. */
export interface RpcContext {
	readonly ingest: Ingest;
	readonly eventIngest: Pick<EventIngest, "request">;
	readonly get: GetConversation;
	readonly list: ListConversations;
	readonly updates: ListConversationUpdates;
	readonly watches: UpdateWatches;
	readonly events: ListConversationEvents;
	readonly eventWatches: EventWatches;
}

/** The methods of {@link SERVICES}. Every transport mounts this table. */
export function rpcMethods(context: RpcContext): readonly RpcMethod[] {
	const { get } = context;
	const reading = ConversationService.method;
	const events = ConversationEventService.method;
	const conversationId = (request: { readonly conversationId: string }) => request.conversationId;
	return [
		unaryUndecoded(
			ConversationIngestService.method.ingestConversation,
			"conversation",
			ingestConversation(context.ingest),
		),
		unaryUndecoded(
			ConversationEventIngestService.method.ingestConversationEvents,
			"events",
			ingestConversationEvents(context.eventIngest),
		),
		unary(reading.getConversation, getConversation(get), {
			encoded: getEncodedConversation(get),
			conversationId: ({ id }) => id,
		}),
		unary(reading.listConversations, listConversations(context.list)),
		unary(reading.listConversationUpdates, listConversationUpdates(context.updates), { conversationId }),
		serverStream(reading.watchConversationUpdates, watchConversationUpdates(context.watches), { conversationId }),
		unary(events.listConversationEvents, listConversationEvents(context.events), { conversationId }),
		serverStream(events.watchConversationEvents, watchConversationEvents(context.eventWatches), { conversationId }),
	];
}
