import { EventOrder } from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { ConversationGap } from "../../../gen/conversations/v1/conversation_gap_service_pb.js";
import type { Sender } from "../../../gen/conversations/v1/conversation_sender_service_pb.js";
import { ConversationOrder } from "../../../gen/conversations/v1/conversation_service_pb.js";
import type { Principal } from "../../access/keys.ts";
import type { ConversationReads, Reads } from "../../conversations/conversation-reads.ts";
import { eventJson } from "../../conversations/read/event-view.ts";
import { uuid } from "../../conversations/read/filter.ts";
import { nameOfGapKind } from "../../conversations/read/gaps.ts";
import type { ListedConversation } from "../../conversations/read/list.ts";
import { encodeSummary } from "../../conversations/read/stored-summary.ts";
import type { RetryRefusedPosts } from "../../conversations/refused/retry.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import type { ExactJson } from "../../record/json/json-value.ts";
import { formatDateTime } from "../../record/json/scalars.ts";
import { type ListOrder, listOrders } from "../../store/condition.ts";
import type { Route } from "../http/router.ts";
import {
	EVENT_FILTER_PARAMETERS,
	EVENT_REPEATABLE,
	eventFilterOf,
	FILTER_PARAMETERS,
	filterOf,
	known,
	REPEATABLE,
	secretsOf,
	updateViewOf,
} from "./parameters.ts";
import { pageOf, Query } from "./query.ts";
import { refusedPostRoutes } from "./refused-posts.ts";
import { searchRoute } from "./search.ts";
import { usageRoute } from "./usage.ts";

/** Path of the list of conversations under the configured base path. */
export const CONVERSATIONS_PATH = "/api/v1/conversations";

const GET_PARAMETERS = ["sequence", "secrets"] as const;
const LIST_PARAMETERS = [...FILTER_PARAMETERS, "order_by", "page_size", "page_token", "view", "secrets"] as const;
const COUNT_PARAMETERS = [...FILTER_PARAMETERS, "group_by"] as const;
const UPDATE_PARAMETERS = ["after_sequence", "page_size", "page_token", "view", "origin", "secrets"] as const;
const EVENT_PARAMETERS = [
	...EVENT_FILTER_PARAMETERS,
	...(["after_sequence", "before_sequence", "order", "page_size", "page_token", "secrets"] as const),
] as const;
const EVENT_ORDERS = { oldest_first: EventOrder.OLDEST_FIRST, newest_first: EventOrder.NEWEST_FIRST };
const ORDERS: Readonly<Record<ListOrder, ConversationOrder>> = {
	updated: ConversationOrder.UPDATED,
	activity: ConversationOrder.ACTIVITY,
	created: ConversationOrder.CREATED,
	cost: ConversationOrder.COST,
	tokens: ConversationOrder.TOKENS,
};

/**
 * Returns the routes of the JSON reads. Records have the form of the webhook. Errors are JSON objects whose `detail` is
 * a sentence.
 */
export function readRoutes(
	basePath: string,
	reads: Pick<ConversationReads, "of">,
	retries: Pick<RetryRefusedPosts, "retry">,
): readonly Route[] {
	/** Returns what the caller can read. There is no other way for a route to read conversations, so each is limited. */
	const readsOf = (principal: Principal | undefined): Reads => reads.of(known(principal));
	const filter = { names: FILTER_PARAMETERS, repeatable: REPEATABLE, read: filterOf };
	return [
		...refusedPostRoutes(basePath, readsOf, retries),
		usageRoute(basePath, (principal) => readsOf(principal).usage, filter),
		searchRoute(basePath, (principal) => readsOf(principal).search, filter),
		{
			method: "GET",
			path: `${basePath}${CONVERSATIONS_PATH}/{id}`,
			scope: "read",
			handle: async ({ params, search, principal }) => {
				const parameters = new Query(search, GET_PARAMETERS);
				const sequence = parameters.number("sequence");
				const secrets = secretsOf(parameters, principal);
				const { conversation } = await readsOf(principal).get.getJson({ id: params.id ?? "", sequence, secrets });
				return conversation;
			},
		},
		{
			method: "GET",
			path: `${basePath}/api/v1/senders`,
			scope: "read",
			handle: async ({ search, principal }) => {
				new Query(search, []);
				const list = await readsOf(principal).senders.list();
				return `{"senders":[${list.map(senderJson).join(",")}]}`;
			},
		},
		{
			method: "GET",
			path: `${basePath}${CONVERSATIONS_PATH}`,
			scope: "read",
			handle: async ({ search, principal }) => {
				const parameters = new Query(search, LIST_PARAMETERS, REPEATABLE);
				const request = {
					...pageOf(parameters),
					filter: filterOf(parameters),
					orderBy: ORDERS[parameters.word("order_by", listOrders)],
					full: parameters.word("view", ["summary", "full"]) === "full",
					secrets: secretsOf(parameters, principal),
				};
				const page = await readsOf(principal).list.listJson(request);
				// The records are JSON texts already.
				const total = page.totalSize === undefined ? "" : `,"total_size":${page.totalSize}`;
				return `{"conversations":[${page.conversations.map(entryJson).join(",")}],"next_page_token":"${page.nextPageToken}"${total}}`;
			},
		},
		{
			method: "GET",
			path: `${basePath}${CONVERSATIONS_PATH}/counts`,
			scope: "read",
			handle: async ({ search, principal }) => {
				const parameters = new Query(search, COUNT_PARAMETERS, REPEATABLE);
				const groupBy = parameters.text("group_by");
				const request = { groupBy, filter: filterOf(parameters) };
				const { counts, total } = await readsOf(principal).counts.count(request, "");
				// The member of a value has the name of the group.
				const member = JSON.stringify(groupBy);
				const items = counts.map(({ value, count }) => `{${member}:${JSON.stringify(value)},"count":${count}}`);
				return `{"counts":[${items.join(",")}],"total":${total}}`;
			},
		},
		{
			method: "GET",
			path: `${basePath}${CONVERSATIONS_PATH}/{id}/updates`,
			scope: "read",
			handle: async ({ params, search, principal }) => {
				const parameters = new Query(search, UPDATE_PARAMETERS);
				const page = await readsOf(principal).updates.listJson({
					...pageOf(parameters),
					...updateViewOf(parameters, principal),
					conversationId: uuid(params.id ?? "", "id"),
					afterSequence: parameters.number("after_sequence") ?? 0n,
				});
				return `{"updates":[${page.entries.join(",")}],"next_page_token":"${page.nextPageToken}"}`;
			},
		},
		{
			method: "GET",
			path: `${basePath}${CONVERSATIONS_PATH}/{id}/gaps`,
			scope: "read",
			handle: async ({ params, search, principal }) => {
				const parameters = new Query(search, ["page_size", "page_token"]);
				const conversationId = uuid(params.id ?? "", "id");
				const page = await readsOf(principal).gaps.list({ ...pageOf(parameters), conversationId });
				return stringifyExactJson({
					gaps: page.gaps.map(gapJson),
					unknown_relations: page.unknownRelations.map((unknown) => ({
						relation: unknown.relation,
						conversation_id: unknown.conversationId,
					})),
					next_page_token: page.nextPageToken,
				});
			},
		},
		{
			method: "GET",
			path: `${basePath}${CONVERSATIONS_PATH}/{id}/events`,
			scope: "read",
			handle: async ({ params, search, principal }) => {
				const parameters = new Query(search, EVENT_PARAMETERS, EVENT_REPEATABLE);
				const page = await readsOf(principal).events.listTexts({
					...pageOf(parameters),
					conversationId: uuid(params.id ?? "", "id"),
					afterSequence: parameters.number("after_sequence") ?? 0n,
					beforeSequence: parameters.number("before_sequence"),
					order: EVENT_ORDERS[parameters.word("order", ["oldest_first", "newest_first"])],
					filter: eventFilterOf(parameters),
					secrets: secretsOf(parameters, principal),
				});
				// The events are JSON texts already, so none is parsed and written again.
				return `{"events":[${page.entries.map((event) => eventJson(event)).join(",")}],"next_page_token":"${page.nextPageToken}"}`;
			},
		},
	];
}

function gapJson({ kind, afterEventId, missingEventId, since, refusedPostId }: ConversationGap): ExactJson {
	return {
		kind: nameOfGapKind(kind),
		after_event_id: afterEventId || null,
		missing_event_id: missingEventId || null,
		since: since === undefined ? null : formatDateTime(since),
		refused_post_id: refusedPostId || null,
	};
}

function senderJson(sender: Sender): string {
	const { firstPostAt, lastPostAt, clockSkew } = sender;
	return stringifyExactJson({
		name: sender.name,
		owner: sender.owner,
		first_post_at: firstPostAt === undefined ? null : formatDateTime(firstPostAt),
		last_post_at: lastPostAt === undefined ? null : formatDateTime(lastPostAt),
		records: sender.records,
		events: sender.events,
		running_conversations: sender.runningConversations,
		refusals_last_hour: sender.refusalsLastHour,
		refusals_last_day: sender.refusalsLastDay,
		clock_skew_seconds: clockSkew === undefined ? null : clockSkew.seconds,
		silent: sender.silent,
	});
}

function entryJson({ sequence, hasRecord, summary, conversation, unreadable }: ListedConversation<string>): string {
	const record = conversation === undefined ? "" : `,"conversation":${conversation}`;
	const mark = unreadable ? ',"unreadable":true' : "";
	return `{"sequence":${sequence},"has_record":${hasRecord},"summary":${stringifyExactJson(encodeSummary(summary))}${record}${mark}}`;
}
