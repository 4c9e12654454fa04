import {
	type WatchConversationUpdatesRequest,
	WatchPosition,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Principal } from "../access/keys.ts";
import { invalid, uuid } from "../conversations/read/filter.ts";
import type { WatchBatch, Watches, WatchRequest } from "../conversations/watch/watch.ts";
import { viewOptionsOf } from "./view-options.ts";

/** `ConversationService.WatchConversationUpdates`. */
export function watchConversationUpdates(watches: Watches) {
	return async function* (
		request: WatchConversationUpdatesRequest,
		caller: Principal,
		signal: AbortSignal,
	): AsyncGenerator<WatchBatch, void, undefined> {
		const { conversationId, filter } = request;
		const watched = {
			start: startOf(request),
			conversationId: conversationId === "" ? undefined : uuid(conversationId, "conversation_id"),
			filter,
			view: viewOptionsOf(request, caller),
		};
		yield* watches.watch(watched, signal);
	};
}

function startOf({ start }: WatchConversationUpdatesRequest): WatchRequest["start"] {
	if (start.case === "afterSequence") {
		if (start.value < 0n) throw invalid("after_sequence", "must not be negative");
		return start.value;
	}
	switch (start.value) {
		case undefined:
		case WatchPosition.UNSPECIFIED:
		case WatchPosition.NOW:
			return "now";
		case WatchPosition.BEGINNING:
			return "beginning";
		default:
			throw invalid("position", "is not a known position");
	}
}
