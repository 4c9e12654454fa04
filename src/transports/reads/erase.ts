import type { ConversationReads } from "../../conversations/conversation-reads.ts";
import type { Route } from "../http/router.ts";
import { known } from "./parameters.ts";
import { Query } from "./query.ts";
import { CONVERSATIONS_PATH } from "./reads.ts";

/**
 * Returns the route that erases a conversation.
 *
 * @param basePath prefix of the path: empty, or with a leading and no trailing slash
 */
export function eraseRoute(basePath: string, reads: Pick<ConversationReads, "of">): Route {
	return {
		method: "DELETE",
		path: `${basePath}${CONVERSATIONS_PATH}/{id}`,
		scope: "erase",
		handle: async ({ params, search, principal }) => {
			const withChildren = new Query(search, ["with_children"]).boolean("with_children") ?? false;
			const caller = known(principal);
			const erased = await reads.of(caller).erasing.erase({ id: params.id ?? "", withChildren }, caller);
			return `{"erased":${erased}}`;
		},
	};
}
