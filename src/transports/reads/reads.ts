import { create } from "@bufbuild/protobuf";
import {
	type ConversationEventFilter,
	ConversationEventFilterSchema,
	EventOrder,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import type { Sender } from "../../../gen/conversations/v1/conversation_sender_service_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
	ConversationOrder,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { Principal } from "../../access/keys.ts";
import type { ConversationReads, Reads } from "../../conversations/conversation-reads.ts";
import { authorizeSecrets } from "../../conversations/read/authorize-secrets.ts";
import type { EventText } from "../../conversations/read/event-view.ts";
import { invalid, uuid } from "../../conversations/read/filter.ts";
import type { ListedConversation } from "../../conversations/read/list.ts";
import { statusNamed } from "../../conversations/status.ts";
import { ServiceError } from "../../errors.ts";
import { deriveEncoder } from "../../record/json/encode.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import { type ExactJson, setMember } from "../../record/json/json-value.ts";
import { formatDateTime, fromMicroseconds } from "../../record/json/scalars.ts";
import { planMessage } from "../../record/plan/plan.ts";
import { type SecretsForm, secretsForms } from "../../record/secrets/secret-walk.ts";
import { type ListOrder, listOrders } from "../../store/condition.ts";
import type { Route } from "../http/router.ts";
import { Query } from "./query.ts";
import { usageRoute } from "./usage.ts";

/** Path of the list of conversations under the configured base path. */
export const CONVERSATIONS_PATH = "/api/v1/conversations";

const GET_PARAMETERS = ["sequence", "secrets"] as const;
const FILTER_PARAMETERS = [
	"execution_status",
	"execution_status_not",
	"agent_kind",
	"model",
	"parent_conversation_id",
	"forked_from_conversation_id",
	"tag",
	"tag_key",
	"created_from",
	"created_to",
	"updated_from",
	"updated_to",
	"title_contains",
	"sender",
	"owner",
	"activity_from",
	"activity_to",
	"cost_from",
	"cost_to",
	"has_error",
] as const;
/** Those of the parameters of a filter that may occur several times. */
const REPEATABLE = ["execution_status", "execution_status_not", "tag"] as const;
const LIST_PARAMETERS = [...FILTER_PARAMETERS, "order_by", "page_size", "page_token", "view", "secrets"] as const;
const COUNT_PARAMETERS = [...FILTER_PARAMETERS, "group_by"] as const;
const EVENT_PARAMETERS = [
	"after_sequence",
	"before_sequence",
	"order",
	"page_size",
	"page_token",
	"kind",
	"kind_not",
	"source",
	"happened_from",
	"happened_to",
	"secrets",
] as const;
const EVENT_ORDERS = { oldest_first: EventOrder.OLDEST_FIRST, newest_first: EventOrder.NEWEST_FIRST };
const ORDERS: Readonly<Record<ListOrder, ConversationOrder>> = {
	updated: ConversationOrder.UPDATED,
	activity: ConversationOrder.ACTIVITY,
	created: ConversationOrder.CREATED,
	cost: ConversationOrder.COST,
	tokens: ConversationOrder.TOKENS,
};
/** Replaces larger page sizes. It is larger than any page, so the result is the same. */
const LARGE_PAGE = 1_000_000n;

const encodeSummary: (summary: ConversationSummary) => ExactJson = deriveEncoder(
	planMessage(ConversationSummarySchema),
);

/**
 * Returns the routes of the JSON reads. Records have the form of the webhook. Errors are JSON objects whose `detail` is
 * a sentence.
 */
export function readRoutes(basePath: string, reads: Pick<ConversationReads, "of">): readonly Route[] {
	/** Returns what the caller can read. There is no other way for a route to read conversations, so each is limited. */
	const readsOf = (principal: Principal | undefined): Reads => reads.of(known(principal));
	return [
		usageRoute(basePath, (principal) => readsOf(principal).usage, {
			names: FILTER_PARAMETERS,
			repeatable: REPEATABLE,
			read: filterOf,
		}),
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
				return `{"conversations":[${page.conversations.map(entryJson).join(",")}],"next_page_token":"${page.nextPageToken}"}`;
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
			path: `${basePath}${CONVERSATIONS_PATH}/{id}/events`,
			scope: "read",
			handle: async ({ params, search, principal }) => {
				const parameters = new Query(search, EVENT_PARAMETERS, ["kind", "kind_not", "source"]);
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
				return `{"events":[${page.entries.map(eventJson).join(",")}],"next_page_token":"${page.nextPageToken}"}`;
			},
		},
	];
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

function pageOf(parameters: Query<"page_size" | "page_token">): { pageSize: number; pageToken: string } {
	const requested = parameters.number("page_size") ?? 0n;
	return {
		pageSize: Number(requested < LARGE_PAGE ? requested : LARGE_PAGE),
		pageToken: parameters.text("page_token"),
	};
}

function secretsOf(parameters: Query<"secrets">, principal: Principal | undefined): SecretsForm {
	const form = parameters.word("secrets", secretsForms);
	authorizeSecrets(known(principal), form);
	return form;
}

/** @throws ServiceError `unauthenticated` for a request without a key, which the gate lets through on public routes only */
function known(principal: Principal | undefined): Principal {
	if (principal === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
	return principal;
}

/** Returns the filter in the form of the RPCs, so that the same rules apply to both. */
function filterOf(parameters: Query<(typeof FILTER_PARAMETERS)[number]>): ConversationFilter {
	return create(ConversationFilterSchema, {
		executionStatuses: statusesOf("execution_status", parameters),
		executionStatusesNot: statusesOf("execution_status_not", parameters),
		agentKind: parameters.text("agent_kind"),
		model: parameters.text("model"),
		parentConversationId: parameters.text("parent_conversation_id"),
		forkedFromConversationId: parameters.text("forked_from_conversation_id"),
		tags: tagsOf(parameters.texts("tag")),
		tagKey: parameters.text("tag_key"),
		titleContains: parameters.text("title_contains"),
		sender: parameters.text("sender"),
		owner: parameters.text("owner"),
		createdFrom: parameters.dateTime("created_from"),
		createdTo: parameters.dateTime("created_to"),
		updatedFrom: parameters.dateTime("updated_from"),
		updatedTo: parameters.dateTime("updated_to"),
		activityFrom: parameters.dateTime("activity_from"),
		activityTo: parameters.dateTime("activity_to"),
		costFrom: parameters.decimal("cost_from"),
		costTo: parameters.decimal("cost_to"),
		hasError: parameters.boolean("has_error"),
	});
}

function statusesOf<Name extends (typeof FILTER_PARAMETERS)[number]>(
	name: Name,
	parameters: Query<(typeof FILTER_PARAMETERS)[number]>,
): ConversationExecutionStatus[] {
	return parameters.texts(name).flatMap((text) => {
		if (text === "") return [];
		const status = statusNamed(text);
		if (status === undefined) throw invalid(name, "is not a known status");
		return [status];
	});
}

function eventFilterOf(parameters: Query<(typeof EVENT_PARAMETERS)[number]>): ConversationEventFilter {
	return create(ConversationEventFilterSchema, {
		kinds: parameters.texts("kind"),
		kindsNot: parameters.texts("kind_not"),
		sources: parameters.texts("source"),
		happenedFrom: parameters.dateTime("happened_from"),
		happenedTo: parameters.dateTime("happened_to"),
	});
}

/** Returns the tags of texts `key:value`. The value may contain further colons. */
function tagsOf(texts: readonly string[]): Record<string, string> {
	const tags: Record<string, string> = {};
	for (const text of texts) {
		const [, key, value] = /^([^:]+):(.*)$/s.exec(text) ?? [];
		if (key === undefined || value === undefined) throw invalid("tag", "must have the form key:value");
		if (Object.hasOwn(tags, key) && tags[key] !== value) throw invalid("tag", "has two values for the same key");
		setMember(tags, key, value);
	}
	return tags;
}

function entryJson({ sequence, summary, conversation, unreadable }: ListedConversation<string>): string {
	const record = conversation === undefined ? "" : `,"conversation":${conversation}`;
	const mark = unreadable ? ',"unreadable":true' : "";
	return `{"sequence":${sequence},"summary":${stringifyExactJson(encodeSummary(summary))}${record}${mark}}`;
}

/**
 * Returns the JSON text of a list entry: the event as it was sent, its sequence number and its times. An event that was
 * fetched from the agent server is marked as such.
 */
function eventJson({ sequence, receivedAt, happenedAt, sender = "", origin, text }: EventText): string {
	const [received, happened] = [receivedAt, happenedAt].map((time) => formatDateTime(fromMicroseconds(time)));
	const event = text === undefined ? '"unreadable":true' : `"event":${text}`;
	const mark = origin === UpdateOrigin.RECONCILED ? `"origin":"reconciled",` : "";
	return `{"sequence":${sequence},"received_at":"${received}","happened_at":"${happened}","sender":${JSON.stringify(sender)},${mark}${event}}`;
}
