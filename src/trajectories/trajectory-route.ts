import type { ConversationReads } from "../conversations/conversation-reads.ts";
import { ServiceError } from "../errors.ts";
import type { Route } from "../transports/http/router.ts";
import { Query } from "../transports/reads/query.ts";
import { trajectoryForms, trajectoryJson } from "./trajectories.ts";

/** Path of the trajectory of a conversation under the configured base path. */
export const TRAJECTORY_PATH = "/api/v1/conversations/{id}/trajectory";

/** Returns the route of the trajectory of a conversation. */
export function trajectoryRoute(basePath: string, reads: Pick<ConversationReads, "of">): Route {
	return {
		method: "GET",
		path: `${basePath}${TRAJECTORY_PATH}`,
		scope: "read",
		handle: async ({ params, search, principal }) => {
			if (principal === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
			const form = new Query(search, ["form"]).word("form", trajectoryForms);
			return await trajectoryJson(reads.of(principal), params.id ?? "", form);
		},
	};
}
