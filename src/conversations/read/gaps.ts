import { create } from "@bufbuild/protobuf";
import {
	type ConversationGap,
	ConversationGapKind,
	ConversationGapSchema,
	type ListConversationGapsRequest,
	type ListConversationGapsResponse,
	ListConversationGapsResponseSchema,
	type UnknownRelation,
	UnknownRelationSchema,
} from "../../../gen/conversations/v1/conversation_gap_service_pb.js";
import { ServiceError } from "../../errors.ts";
import { fromMicroseconds } from "../../record/json/scalars.ts";
import type { Gap, GapKind } from "../../store/gaps.ts";
import { uuid } from "./filter.ts";
import { pageSize, readPageToken, writePageToken } from "./page.ts";
import { decodeSummary } from "./records.ts";
import type { StoreReads } from "./visible-store.ts";

const LIST = "gaps";

const KINDS: Readonly<Record<GapKind, ConversationGapKind>> = {
	missing_parent: ConversationGapKind.MISSING_PARENT,
	missing_leaf: ConversationGapKind.MISSING_LEAF,
	no_record: ConversationGapKind.NO_RECORD,
	refused_batch: ConversationGapKind.REFUSED_BATCH,
};

export type GapsRequest = Pick<ListConversationGapsRequest, "conversationId" | "pageSize" | "pageToken">;

type GapReads = Pick<StoreReads, "get" | "getOwnership" | "listGaps" | "listRefusedPosts">;

/**
 * Lists what is missing of a conversation, the oldest gap first. A gap that closes between two pages lets a later one be left
 * out.
 *
 * @throws ServiceError `not_found`; `invalid_argument` when the id is no UUID, or the page token belongs to another
 *   request
 */
export async function listGaps(store: GapReads, request: GapsRequest): Promise<ListConversationGapsResponse> {
	const conversationId = uuid(request.conversationId, "conversation_id");
	const limit = pageSize(request.pageSize);
	const scope = { conversationId };
	const [passed = 0n] = readPageToken(LIST, scope, request.pageToken);
	const [ownership, gaps] = await Promise.all([store.getOwnership(conversationId), store.listGaps(conversationId)]);
	if (ownership === undefined && gaps.length === 0) throw new ServiceError("not_found", "Conversation not found");
	const end = Number(passed) + limit;
	const page = gaps.toSorted(inOrder).slice(Number(passed), end);
	return create(ListConversationGapsResponseSchema, {
		gaps: await Promise.all(page.map((gap) => toMessage(store, conversationId, ownership?.owner, gap))),
		unknownRelations: await unknownRelations(store, conversationId, ownership?.owner),
		nextPageToken: end < gaps.length ? writePageToken(LIST, scope, BigInt(end)) : "",
	});
}

async function toMessage(
	store: GapReads,
	conversationId: string,
	owner: string | undefined,
	{ kind, missing, after, since }: Gap,
): Promise<ConversationGap> {
	return create(ConversationGapSchema, {
		kind: KINDS[kind],
		since: fromMicroseconds(since),
		...(after === undefined ? {} : { afterEventId: after }),
		...(kind === "missing_parent" || kind === "missing_leaf" ? { missingEventId: missing } : {}),
		...(kind === "refused_batch" ? { refusedPostId: missing } : {}),
		...(kind === "no_record" ? { refusedPostId: await refusedRecord(store, conversationId, owner) } : {}),
	});
}

/** Returns the id of the last record of a conversation that was refused and is kept; empty when there is none. */
async function refusedRecord(store: GapReads, conversationId: string, owner: string | undefined): Promise<string> {
	const [post] = await store.listRefusedPosts({ recordOf: conversationId, owner, limit: 1 });
	return post === undefined ? "" : String(post.id);
}

async function unknownRelations(
	store: GapReads,
	conversationId: string,
	owner: string | undefined,
): Promise<UnknownRelation[]> {
	const current = await store.get(conversationId);
	if (current === undefined) return [];
	const { parentConversationId: parent, forkedFromConversationId: source } = decodeSummary(current.summary);
	const unknown: UnknownRelation[] = [];
	for (const [relation, id] of Object.entries({ parent, source })) {
		if (id === undefined) continue;
		const ownership = await store.getOwnership(id);
		if (ownership === undefined || ownership.owner !== owner)
			unknown.push(create(UnknownRelationSchema, { relation, conversationId: id }));
	}
	return unknown;
}

function inOrder(a: Gap, b: Gap): number {
	if (a.since !== b.since) return a.since < b.since ? -1 : 1;
	const [left, right] = [`${a.kind} ${a.missing}`, `${b.kind} ${b.missing}`];
	return left < right ? -1 : 1;
}
