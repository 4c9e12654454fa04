import { isUtf8 } from "node:buffer";
import type { RefusedPost } from "../../../gen/conversations/v1/refused_post_service_pb.js";
import type { Principal } from "../../access/keys.ts";
import type { Reads } from "../../conversations/conversation-reads.ts";
import { invalid } from "../../conversations/read/filter.ts";
import type { RetryRefusedPosts } from "../../conversations/refused/retry.ts";
import { ServiceError } from "../../errors.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import type { ExactJson } from "../../record/json/json-value.ts";
import { formatDateTime } from "../../record/json/scalars.ts";
import { readBody } from "../http/body.ts";
import type { Route } from "../http/router.ts";
import { pageOf, Query } from "./query.ts";

/** Path of the list of refused posts under the configured base path. */
export const REFUSED_POSTS_PATH = "/api/v1/refused-posts";

/** Maximum number of bytes of a request to take posts in: it has at most 1000 ids. */
const MAX_RETRY_BYTES = 65_536;

/** Returns the routes that show refused posts and take them in. */
export function refusedPostRoutes(
	basePath: string,
	readsOf: (principal: Principal | undefined) => Reads,
	retries: Pick<RetryRefusedPosts, "retry">,
): readonly Route[] {
	return [
		{
			method: "GET",
			path: `${basePath}${REFUSED_POSTS_PATH}`,
			scope: "read",
			handle: async ({ search, principal }) => {
				const parameters = new Query(search, ["page_size", "page_token"]);
				const { posts, nextPageToken } = await readsOf(principal).refused.list(pageOf(parameters));
				return stringifyExactJson({ refused_posts: posts.map(postJson), next_page_token: nextPageToken });
			},
		},
		{
			method: "GET",
			path: `${basePath}${REFUSED_POSTS_PATH}/{post}`,
			scope: "read",
			handle: async ({ params, search, principal }) => {
				new Query(search, []);
				const withBody = principal?.scopes.has("secrets") === true;
				const { post, body } = await readsOf(principal).refused.get(params.post ?? "", withBody);
				const isText = body !== undefined && isUtf8(body);
				return stringifyExactJson({
					...postJson(post),
					body: isText ? body.toString() : null,
					body_base64: body === undefined || isText ? null : body.toString("base64"),
				});
			},
		},
		{
			method: "POST",
			path: `${basePath}${REFUSED_POSTS_PATH}:retry`,
			scope: "ingest",
			handle: async ({ request, search, principal, permit }) => {
				if (principal === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
				new Query(search, []);
				const body = await readBody(request, MAX_RETRY_BYTES, (bytes) => permit.reserve(bytes));
				const retried = await retries.retry(retryRequest(body), principal);
				return stringifyExactJson({
					taken_in: retried.takenIn,
					still_refused: retried.stillRefused,
					without_body: retried.withoutBody,
					next_page_token: retried.nextPageToken,
				});
			},
		},
	];
}

function postJson(post: RefusedPost): Readonly<Record<string, ExactJson>> {
	const time = (at: RefusedPost["receivedAt"]) => (at === undefined ? null : formatDateTime(at));
	return {
		id: post.id,
		received_at: time(post.receivedAt),
		last_at: time(post.lastAt),
		requests: post.requests,
		sender: post.sender,
		owner: post.owner,
		peer: post.peer,
		route: post.route,
		kind: post.kind,
		reasons: post.reasons.map(({ place, type, message }) => ({ place, type, message })),
		conversation_id: post.conversationId,
		size: post.size,
		has_body: post.hasBody,
		accepted: post.accepted,
		retried_at: time(post.retriedAt),
	};
}

/**
 * Reads the request to take posts in. An empty body stands for all posts.
 *
 * @throws ServiceError `invalid_argument` when the body is something else
 */
function retryRequest(body: Buffer): { readonly ids: readonly string[]; readonly pageToken: string } {
	let json: unknown;
	try {
		json = body.length === 0 ? {} : JSON.parse(body.toString());
	} catch (cause) {
		throw new ServiceError("invalid_argument", "The body is not JSON", { cause });
	}
	if (typeof json !== "object" || json === null || Array.isArray(json))
		throw new ServiceError("invalid_argument", "The body must be a JSON object with ids and page_token");
	const members: Readonly<Record<string, unknown>> = { ...json };
	const unknown = Object.keys(members).find((name) => name !== "ids" && name !== "page_token");
	if (unknown !== undefined) throw new ServiceError("invalid_argument", "The body has a member that is not known");
	const { ids = [], page_token: pageToken = "" } = members;
	const isText = (value: unknown): value is string => typeof value === "string";
	if (!Array.isArray(ids) || !ids.every(isText)) throw invalid("ids", "must be a list of texts");
	if (!isText(pageToken)) throw invalid("page_token", "must be a text");
	return { ids, pageToken };
}
