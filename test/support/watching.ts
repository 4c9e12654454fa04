import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
	ConversationUpdate,
	WatchConversationUpdatesRequestSchema,
	WatchConversationUpdatesResponse,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { type Endpoints, readClient } from "./clients.ts";

/**
 * For polls: a watch that has ended must be released within this time, sooner than by its next heartbeat after 15 s.
 */
export const RELEASE_POLL = { timeout: 10_000 } as const;

export type WatchRequest = MessageInitShape<typeof WatchConversationUpdatesRequestSchema>;

/** Start of a watch of all stored updates. */
export const BEGINNING = { case: "afterSequence", value: 0n } as const;

/** Opens a watch over gRPC. It ends when the signal is aborted, or with the test's process. */
export function watch(
	service: Endpoints,
	key: string,
	request: WatchRequest,
	signal?: AbortSignal,
): AsyncIterable<WatchConversationUpdatesResponse> {
	return readClient(service, "gRPC", key).watchConversationUpdates(request, signal && { signal });
}

/** Returns the updates that a watch delivers until it has caught up with the store. */
export async function updatesUntilCaughtUp(
	service: Endpoints,
	key: string,
	request: WatchRequest,
): Promise<ConversationUpdate[]> {
	const end = new AbortController();
	const updates: ConversationUpdate[] = [];
	try {
		for await (const { content, sequence } of watch(service, key, request, end.signal)) {
			if (content.case === "update") updates.push(content.value);
			if (content.case === "heartbeat" && content.value.latestSequence === sequence) break;
		}
	} finally {
		end.abort();
	}
	return updates;
}
