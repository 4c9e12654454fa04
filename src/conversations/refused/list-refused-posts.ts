import { create } from "@bufbuild/protobuf";
import { type RefusedPost, RefusedPostSchema } from "../../../gen/conversations/v1/refused_post_service_pb.js";
import { ServiceError } from "../../errors.ts";
import { fromMicroseconds } from "../../record/json/scalars.ts";
import type { RefusedPost as StoredPost } from "../../store/refused-posts.ts";
import { invalid } from "../read/filter.ts";
import { pageSize } from "../read/page.ts";
import { readPageToken, writePageToken } from "../read/page-token.ts";
import type { StoreReads } from "../read/visible-store.ts";
import { unpackReasons } from "./reasons.ts";
import type { RefusedPosts } from "./refused-posts.ts";

/** Name of the list in page tokens. */
const LIST = "refused_posts";

/** A page of refused posts. */
export interface RefusedPage {
	readonly posts: readonly RefusedPost[];
	/** Empty when there are no more. */
	readonly nextPageToken: string;
}

/** Reads the refused posts that a caller may see. */
export class ListRefusedPosts {
	readonly #store: Pick<StoreReads, "refusedPosts">;
	readonly #kept: Pick<RefusedPosts, "written" | "bodyOf">;

	constructor(store: Pick<StoreReads, "refusedPosts">, kept: Pick<RefusedPosts, "written" | "bodyOf">) {
		this.#store = store;
		this.#kept = kept;
	}

	/**
	 * Lists posts, the newest first, with those that were refused a moment ago.
	 *
	 * @throws ServiceError `invalid_argument` for a size or a token that is not valid
	 */
	async list(request: { readonly pageSize: number; readonly pageToken: string }): Promise<RefusedPage> {
		const limit = pageSize(request.pageSize);
		const before = request.pageToken === "" ? undefined : readPageToken(LIST, {}, request.pageToken);
		await this.#kept.written();
		const found = await this.#store.refusedPosts.list({ before, limit: limit + 1 });
		const posts = found.slice(0, limit);
		const last = found.length > limit ? posts.at(-1) : undefined;
		return { posts: posts.map(postOf), nextPageToken: last === undefined ? "" : writePageToken(LIST, {}, last.id) };
	}

	/**
	 * Returns a post.
	 *
	 * @param withBody whether the body is returned, too, if it is kept
	 * @throws ServiceError `invalid_argument` for an id that cannot be one; `not_found`; `data_loss` when the body cannot
	 *   be decrypted
	 */
	async get(id: string, withBody: boolean): Promise<{ readonly post: RefusedPost; readonly body: Buffer | undefined }> {
		const wanted = refusedId(id);
		await this.#kept.written();
		const found = await this.#store.refusedPosts.get(wanted);
		if (found === undefined) throw new ServiceError("not_found", `There is no refused post ${id}`);
		const { body, ...post } = found;
		return {
			post: postOf({ ...post, hasBody: body !== undefined }),
			body: withBody ? await this.#kept.bodyOf(found) : undefined,
		};
	}
}

/** The form of the id of a refused post. */
export const REFUSED_ID = /^[1-9]\d{0,18}$/;

/**
 * Reads the id of a refused post.
 *
 * @param name of the field that has it
 * @throws ServiceError `invalid_argument` for a text that cannot be one
 */
export function refusedId(text: string, name = "id"): bigint {
	const id = REFUSED_ID.test(text) ? BigInt(text) : undefined;
	if (id === undefined || id >= 2n ** 63n) throw invalid(name, "must be the id of a refused post");
	return id;
}

function postOf(stored: StoredPost): RefusedPost {
	const { receivedAt, lastAt, retriedAt } = stored;
	return create(RefusedPostSchema, {
		id: String(stored.id),
		receivedAt: fromMicroseconds(receivedAt),
		lastAt: fromMicroseconds(lastAt),
		requests: stored.requests,
		sender: stored.sender ?? "",
		owner: stored.owner ?? "",
		peer: stored.peer ?? "",
		route: stored.route,
		kind: stored.kind,
		reasons: [...unpackReasons(stored.reasons)],
		conversationId: stored.conversationId ?? "",
		size: BigInt(stored.size),
		hasBody: stored.hasBody,
		accepted: stored.accepted,
		...(retriedAt === undefined ? {} : { retriedAt: fromMicroseconds(retriedAt) }),
	});
}
