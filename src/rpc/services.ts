import type { DescService } from "@bufbuild/protobuf";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Ingest } from "../conversations/ingest/ingest.ts";
import type { GetConversation } from "../conversations/read/get.ts";
import type { ListConversations } from "../conversations/read/list.ts";
import type { ListConversationUpdates } from "../conversations/read/updates.ts";
import type { Watches } from "../conversations/watch/watch.ts";
import { getConversation, getEncodedConversation } from "./get-conversation.ts";
import { ingestConversation } from "./ingest-conversation.ts";
import { listConversationUpdates } from "./list-conversation-updates.ts";
import { listConversations } from "./list-conversations.ts";
import { type RpcMethod, serverStream, unary, unaryUndecoded } from "./rpc-method.ts";
import { watchConversationUpdates } from "./watch-conversation-updates.ts";

/** All RPC services of the program. */
export const SERVICES: readonly DescService[] = [ConversationIngestService, ConversationService];

/** What the methods work with. */
export interface RpcContext {
	readonly ingest: Ingest;
	readonly get: GetConversation;
	readonly list: ListConversations;
	readonly updates: ListConversationUpdates;
	readonly watches: Watches;
}

/** The methods of {@link SERVICES}. Every transport mounts this table. */
export function rpcMethods({ ingest, get, list, updates, watches }: RpcContext): readonly RpcMethod[] {
	const writing = ConversationIngestService.method;
	const reading = ConversationService.method;
	return [
		unaryUndecoded(writing.ingestConversation, "conversation", ingestConversation(ingest)),
		unary(reading.getConversation, getConversation(get), {
			encoded: getEncodedConversation(get),
			conversationId: ({ id }) => id,
		}),
		unary(reading.listConversations, listConversations(list)),
		unary(reading.listConversationUpdates, listConversationUpdates(updates), {
			conversationId: ({ conversationId }) => conversationId,
		}),
		serverStream(reading.watchConversationUpdates, watchConversationUpdates(watches), {
			conversationId: ({ conversationId }) => conversationId,
		}),
	];
}
