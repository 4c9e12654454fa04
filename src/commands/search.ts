import { ConversationSearchService } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import type { Config } from "../config/config.ts";
import { callAsCommand } from "./admin.ts";

/** The command `search rebuild`. It is a client of `ConversationSearchService`. */

/** Lets the index of search be written anew. Returns a sentence about it. */
export async function rebuildSearch(config: Config): Promise<string> {
	await callAsCommand(config, ConversationSearchService, (client) => client.rebuildSearchIndex({}));
	return "The running service, or else the next one that starts, writes the index of search anew.";
}
