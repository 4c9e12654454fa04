import { RefusedPostService } from "../../gen/conversations/v1/refused_post_service_pb.js";
import type { Audit } from "../access/audit.ts";
import type { ConversationReads } from "../conversations/conversation-reads.ts";
import type { RetryRefusedPosts } from "../conversations/refused/list-and-retry.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** The methods of `RefusedPostService`. */
export function refusedPostMethods(
	reads: Pick<ConversationReads, "of">,
	retries: Pick<RetryRefusedPosts, "retry">,
	audit: Pick<Audit, "add">,
): readonly RpcMethod[] {
	const { listRefusedPosts, getRefusedPost, retryRefusedPosts } = RefusedPostService.method;
	return [
		unary(listRefusedPosts, async (request, caller) => {
			const { posts, nextPageToken } = await reads.of(caller).refused.list(request);
			return { refusedPosts: [...posts], nextPageToken };
		}),
		unary(getRefusedPost, async ({ id }, caller) => {
			const { post, body } = await reads.of(caller).refused.get(id, caller.scopes.has("secrets"));
			if (body !== undefined) await audit.add("secrets.read", caller, `refused post ${id}`);
			return { refusedPost: post, ...(body === undefined ? {} : { body }) };
		}),
		unary(retryRefusedPosts, async (request, caller) => {
			const retried = await retries.retry(request, caller);
			if (retried.takenIn > 0n) await audit.add("refused_posts.replayed", caller, "", `${retried.takenIn}`);
			return retried;
		}),
	];
}
