import { ConversationSearchService, SearchField } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import type { ConversationReads } from "../conversations/conversation-reads.ts";
import { ServiceError } from "../errors.ts";
import type { TextField } from "../search/match.ts";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** Writes down that the index is written anew. */
export interface SearchLog {
	/** A caller has asked for it. */
	searchRebuilt(caller: string): void;
}

const FIELDS: Readonly<Record<TextField, SearchField>> = {
	title: SearchField.TITLE,
	message: SearchField.MESSAGE,
	finish_message: SearchField.FINISH_MESSAGE,
	command: SearchField.COMMAND,
	file_name: SearchField.FILE_NAME,
	error: SearchField.ERROR,
};

/** The method that searches. */
export function searchMethod(reads: Pick<ConversationReads, "of">): RpcMethod {
	return unary(ConversationSearchService.method.searchConversations, async (request, caller, signal) => {
		const page = await reads.of(caller).search.search(request, signal);
		return {
			hits: page.hits.map(({ summary, places }) => ({
				summary,
				places: places.map(({ field, ranges, ...place }) => ({ ...place, field: FIELDS[field], ranges: [...ranges] })),
			})),
			nextPageToken: page.nextPageToken,
			indexedThroughSequence: page.indexedThrough,
		};
	});
}

/** The method that lets the index be written anew. */
export function rebuildMethod(store: Pick<Store, "textIndex">, log: SearchLog): RpcMethod {
	return unary(ConversationSearchService.method.rebuildSearchIndex, async (_, caller) => {
		if (caller.owner !== undefined)
			throw new ServiceError("permission_denied", "A key with an owner cannot rebuild the index", {
				caller: caller.name,
			});
		await store.textIndex.reset();
		log.searchRebuilt(caller.name);
		return {};
	});
}
