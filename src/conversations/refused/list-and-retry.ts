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
type KeptPosts = Pick<RefusedPosts, "bodyOf">;

/** Lists the refused posts of a store, the newest first. */
export async function listRefusedPosts(store: ReadStore, request: RefusedRequest): Promise<ListRefusedPostsResponse> {
	const limit = pageSize(request.pageSize);
	const [before] = readPageToken(LIST, {}, request.pageToken);
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
	const found = await store.getRefusedPost({ id: refusedId(id) });
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
	const { retriedAt } = stored;
	const receivedAt = fromMicroseconds(stored.receivedAt);
	return create(RefusedPostSchema, {
		id: String(stored.id),
		...{ receivedAt, lastAt: receivedAt, requests: 1n },
		sender: stored.sender,
		owner: stored.owner ?? "",
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

/** The work of a retry waits for no client. */
const SIGNAL = { aborted: false };

type RetriedPostStore = Pick<Store, "listRefusedPosts" | "getRefusedPost" | "setRefusedReasons" | "removeRefusedPost">;

export interface RetryOptions {
	readonly store: RetriedPostStore;
	readonly kept: KeptPosts;
	readonly records: Pick<Ingest, "json" | "request">;
	readonly events: Pick<EventIngest, "json" | "request">;
}

/**
 * Takes in posts in the order of their times, as posts that arrive now, but with their own times of receipt, senders
 * and owners. One that is taken in is removed; one that is still refused gets its new reasons.
 *
 * @param caller one with an owner takes in the posts of this owner only
 * @throws ServiceError `invalid_argument`; `unavailable` when the store cannot be read or written: what was taken in
 *   before stays so
 */
export async function retryRefusedPosts(
	options: RetryOptions,
	request: Pick<RetryRefusedPostsRequest, "ids" | "pageToken">,
	caller: AuditedCaller,
): Promise<RetryRefusedPostsResponse> {
	if (request.ids.length > MAX_IDS) throw invalid("ids", `must have at most ${MAX_IDS} entries`);
	const { store } = options;
	const { owner } = caller;
	const ids = [...new Set(request.ids.map((id) => refusedId(id, "ids")))].sort((a, b) => (a < b ? -1 : 1));
	const scope = { ids: request.ids.map(String) };
	let [after = 0n] = readPageToken(RETRIED, scope, request.pageToken);
	const done = create(RetryRefusedPostsResponseSchema);
	const until = performance.now() + MAX_TIME;
	for (;;) {
		const listed = ids.length > 0 ? [] : await store.listRefusedPosts({ owner, after, limit: STEP });
		// Read one by one, because bodies can be large.
		for (const id of ids.length > 0 ? ids.filter((id) => id > after) : listed.map(({ id }) => id)) {
			const post = await store.getRefusedPost({ id, owner });
			if (post !== undefined) done[await retryOne(options, post, caller)] += 1n;
			after = id;
			if (performance.now() < until) continue;
			done.nextPageToken = writePageToken(RETRIED, scope, after);
			return done;
		}
		if (listed.length < STEP) return done;
	}
}

async function retryOne(
	{ store, kept, ...ingest }: RetryOptions,
	post: RefusedPostRow,
	caller: AuditedCaller,
): Promise<"takenIn" | "stillRefused" | "withoutBody"> {
	const { id, form } = post;
	let body: Buffer | undefined;
	try {
		body = await kept.bodyOf(post);
	} catch (error) {
		// Its key may be configured later, so the reasons stay.
		if (isDataLoss(error)) return "stillRefused";
		throw error;
	}
	if (body === undefined) return "withoutBody";
	try {
		await takeIn(ingest, post, body);
	} catch (error) {
		const kind = kindOf(error);
		if (kind === "unavailable") throw error;
		const retriedAt = BigInt(Date.now()) * 1000n;
		await store.setRefusedReasons({ id, kind, reasons: packReasons(error, form), retriedAt });
		return "stillRefused";
	}
	await store.removeRefusedPost({ of: id, audit: entryOf("refused_posts.replayed", caller, String(id)) });
	return "takenIn";
}

async function takeIn(
	{ records, events }: Pick<RetryOptions, "records" | "events">,
	{ form, sender, owner, conversationId, receivedAt }: RefusedPostRow,
	body: Buffer,
): Promise<unknown> {
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
