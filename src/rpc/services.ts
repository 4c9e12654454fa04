import type { DescService } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Ingest } from "../conversations/ingest/ingest.ts";
import type { GetConversation } from "../conversations/read/get.ts";
import type { ListConversations } from "../conversations/read/list.ts";
import type { ListConversationUpdates } from "../conversations/read/updates.ts";
import type { Watches } from "../conversations/watch/watch.ts";
import type { Log } from "../telemetry/log.ts";
import { getConversation } from "./get-conversation.ts";
import { ingestConversation } from "./ingest-conversation.ts";
import { listConversationUpdates } from "./list-conversation-updates.ts";
import { listConversations } from "./list-conversations.ts";
import { serverStream, unary } from "./method.ts";
import { watchConversationUpdates } from "./watch-conversation-updates.ts";

/** All RPC services of the program. */
export const SERVICES: readonly DescService[] = [ConversationIngestService, ConversationService];

/** Where services are registered: a Connect router, or the gRPC server's adapter. */
export interface ServiceRegistrar {
	service<Desc extends DescService>(service: Desc, implementation: ServiceImpl<Desc>): unknown;
}

/** What the services' methods work with. */
export interface ServiceContext {
	readonly ingest: Ingest;
	readonly get: GetConversation;
	readonly list: ListConversations;
	readonly updates: ListConversationUpdates;
	readonly watches: Watches;
	readonly log: Log;
}

/** Registers the implementations of {@link SERVICES}, the same for every transport. */
export function registerServices(registrar: ServiceRegistrar, context: ServiceContext): void {
	const { ingest, get, list, updates, watches, log } = context;
	registrar.service(ConversationIngestService, { ingestConversation: unary(log, ingestConversation(ingest)) });
	registrar.service(ConversationService, {
		getConversation: unary(log, getConversation(get)),
		listConversations: unary(log, listConversations(list)),
		listConversationUpdates: unary(log, listConversationUpdates(updates)),
		watchConversationUpdates: serverStream(log, watchConversationUpdates(watches)),
	});
}
