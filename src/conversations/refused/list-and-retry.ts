import { create } from "@bufbuild/protobuf";
import {
	type ListRefusedPostsRequest,
	type ListRefusedPostsResponse,
	ListRefusedPostsResponseSchema,
	type RefusedPost,
	RefusedPostSchema,
	type RetryRefusedPostsRequest,
	type RetryRefusedPostsResponse,
	RetryRefusedPostsResponseSchema,
} from "../../../gen/conversations/v1/refused_post_service_pb.js";
import { type AuditedCaller, entryOf } from "../../access/audit.ts";
import { invalid, isDataLoss, ServiceError } from "../../errors.ts";
import { fromMicroseconds } from "../../record/json/scalars.ts";
import type { RefusedPostRow, RefusedPost as StoredPost } from "../../store/refused-posts.ts";
import type { Store } from "../../store/store.ts";
import type { EventIngest } from "../ingest/event-ingest.ts";
import type { Ingest } from "../ingest/ingest.ts";
import { pageSize, readPageToken, writePageToken } from "../read/page.ts";
import type { StoreReads } from "../read/visible-store.ts";
import { kindOf, packReasons, type RefusedPosts, unpackReasons } from "./refused-posts.ts";

/** Names of the list, and of the posts that are retried, in page tokens. */
const LIST = "refused_posts";
const RETRIED = "retry_refused_posts";

export type RefusedRequest = Pick<ListRefusedPostsRequest, "pageSize" | "pageToken">;

type ReadStore = Pick<StoreReads, "listRefusedPosts" | "getRefusedPost">;
type KeptPosts = Pick<RefusedPosts, "written" | "bodyOf">;

/** Lists the refused posts of a store, the newest first, with those that were refused a moment ago. */
export async function listRefusedPosts(
	store: ReadStore,
	kept: KeptPosts,
	request: RefusedRequest,
): Promise<ListRefusedPostsResponse> {
	const limit = pageSize(request.pageSize);
	const before = request.pageToken === "" ? undefined : readPageToken(LIST, {}, request.pageToken);
	await kept.written();
	const found = await store.listRefusedPosts({ before, limit: limit + 1 });
	const posts = found.slice(0, limit);
	const last = found.length > limit ? posts.at(-1) : undefined;
	const nextPageToken = last === undefined ? "" : writePageToken(LIST, {}, last.id);
	return create(ListRefusedPostsResponseSchema, { refusedPosts: posts.map(postOf), nextPageToken });
}

/**
 * Returns a refused post. Throws `invalid_argument` for an id that cannot be one, `not_found`, and `data_loss` when the
 * body cannot be decrypted.
 */
export async function getRefusedPost(
	store: ReadStore,
	kept: KeptPosts,
	id: string,
	withBody: boolean,
): Promise<{ readonly post: RefusedPost; readonly body: Buffer | undefined }> {
	const wanted = refusedId(id);
	await kept.written();
	const found = await store.getRefusedPost({ id: wanted });
	if (found === undefined) throw new ServiceError("not_found", `There is no refused post ${id}`);
	const { body, ...post } = found;
	return {
		post: postOf({ ...post, hasBody: body !== undefined }),
		body: withBody ? await kept.bodyOf(found) : undefined,
	};
}

/** The form of the id of a refused post. */
export const REFUSED_ID = /^[1-9]\d{0,18}$/;

/** Reads the id of a refused post. Throws `invalid_argument` for a text that cannot be one. */
function refusedId(text: string, name = "id"): bigint {
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
		reasons: unpackReasons(stored.reasons),
		conversationId: stored.conversationId ?? "",
		size: BigInt(stored.size),
		hasBody: stored.hasBody,
		accepted: stored.accepted,
		...(retriedAt === undefined ? {} : { retriedAt: fromMicroseconds(retriedAt) }),
	});
}

export const MAX_IDS = 1_000;
const STEP = 100;
const MAX_TIME = 10_000;

interface RetryIngest {
	readonly records: Pick<Ingest, "json" | "request">;
	readonly events: Pick<EventIngest, "json" | "request">;
}

/** The work of a retry waits for no client. */
const SIGNAL = { aborted: false };

type RetriedPostStore = Pick<Store, "listRefusedPosts" | "getRefusedPost" | "setRefusedReasons" | "removeRefusedPost">;

export class RetryRefusedPosts {
	readonly #store: RetriedPostStore;
	readonly #kept: KeptPosts;
	readonly #ingest: RetryIngest;
	/** The last call. Calls run one after the other, so that no post is taken in twice. */
	#last: Promise<unknown> = Promise.resolve();

	constructor(store: RetriedPostStore, kept: KeptPosts, ingest: RetryIngest) {
		this.#store = store;
		this.#kept = kept;
		this.#ingest = ingest;
	}

	/**
	 * Takes in posts in the order of their times, as posts that arrive now, but with their own times of receipt, senders
	 * and owners. One that is taken in is removed; one that is still refused gets its new reasons.
	 *
	 * @param caller one with an owner takes in the posts of this owner only
	 * @throws ServiceError `invalid_argument`; `unavailable` when the store cannot be read or written: what was taken in
	 *   before stays so
	 */
	async retry(
		request: Pick<RetryRefusedPostsRequest, "ids" | "pageToken">,
		caller: AuditedCaller,
	): Promise<RetryRefusedPostsResponse> {
		if (request.ids.length > MAX_IDS) throw invalid("ids", `must have at most ${MAX_IDS} entries`);
		const ids = [...new Set(request.ids.map((id) => refusedId(id, "ids")))].sort((a, b) => (a < b ? -1 : 1));
		const scope = { ids: request.ids.map(String) };
		const after = request.pageToken === "" ? 0n : readPageToken(RETRIED, scope, request.pageToken);
		const call = this.#last.then(async () => {
			await this.#kept.written();
			const done = create(RetryRefusedPostsResponseSchema);
			const until = performance.now() + MAX_TIME;
			for await (const post of this.#posts(ids, after, caller.owner)) {
				done[await this.#retryOne(post, caller)] += 1n;
				if (performance.now() < until) continue;
				done.nextPageToken = writePageToken(RETRIED, scope, post.id);
				break;
			}
			return done;
		});
		this.#last = call.catch(() => undefined);
		return await call;
	}

	async #retryOne(post: RefusedPostRow, caller: AuditedCaller): Promise<"takenIn" | "stillRefused" | "withoutBody"> {
		const { id, form } = post;
		let body: Buffer | undefined;
		try {
			body = await this.#kept.bodyOf(post);
		} catch (error) {
			// Its key may be configured later, so the reasons stay.
			if (isDataLoss(error)) return "stillRefused";
			throw error;
		}
		if (body === undefined) return "withoutBody";
		try {
			await this.#takeIn(post, body);
		} catch (error) {
			const kind = kindOf(error);
			if (kind === "unavailable") throw error;
			const retriedAt = BigInt(Date.now()) * 1000n;
			await this.#store.setRefusedReasons({ id, kind, reasons: packReasons(error, form), retriedAt });
			return "stillRefused";
		}
		await this.#store.removeRefusedPost({ of: id, audit: entryOf("refused_posts.replayed", caller, String(id)) });
		return "takenIn";
	}

	async #takeIn({ form, sender = "", owner, conversationId, receivedAt }: RefusedPostRow, body: Buffer) {
		const { records, events } = this.#ingest;
		const poster = { sender, owner };
		switch (form) {
			case "record_json":
				return await records.json(body, poster, SIGNAL, receivedAt);
			case "record_message":
				return await records.request(body, poster, SIGNAL, receivedAt);
			case "events_json":
				if (conversationId === undefined)
					throw new ServiceError("invalid_record", "the conversation's id in the path is not a UUID");
				return await events.json(conversationId, body, poster, SIGNAL, receivedAt);
			case "events_message":
				return await events.request(body, poster, SIGNAL, receivedAt);
		}
	}

	/** Returns posts after an id: those with some ids, in the order of these, or all if there are none. */
	async *#posts(
		ids: readonly bigint[],
		start: bigint,
		owner: string | undefined,
	): AsyncGenerator<RefusedPostRow, void, undefined> {
		for (let after = start; ; ) {
			const listed = ids.length > 0 ? [] : await this.#store.listRefusedPosts({ owner, after, limit: STEP });
			const next = ids.length > 0 ? ids.filter((id) => id > start) : listed.map(({ id }) => id);
			// Read one by one, because bodies can be large.
			for (const id of next) {
				const found = await this.#store.getRefusedPost({ id, owner });
				if (found !== undefined) yield found;
			}
			const last = listed.at(-1);
			if (last === undefined) return;
			after = last.id;
		}
	}
}
