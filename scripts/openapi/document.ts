import { type DescEnum, type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { comments } from "../../gen/comments.js";
import { DeleteConversationRequestSchema } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import {
	ConversationEventFilterSchema,
	EventOrderSchema,
	ListConversationEventsRequestSchema,
	ListConversationEventsResponseSchema,
	WatchConversationEventsRequestSchema,
} from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { ListConversationGapsRequestSchema } from "../../gen/conversations/v1/conversation_gap_service_pb.js";
import {
	CountConversationsRequestSchema,
	ReportUsageRequestSchema,
	UsageStepSchema,
} from "../../gen/conversations/v1/conversation_report_service_pb.js";
import {
	SearchConversationsRequestSchema,
	SearchFieldSchema,
	SearchOrderSchema,
} from "../../gen/conversations/v1/conversation_search_service_pb.js";
import {
	ConversationFilterSchema,
	ConversationOrderSchema,
	ConversationViewSchema,
	GetConversationRequestSchema,
	ListConversationsRequestSchema,
	ListConversationsResponseSchema,
	ListConversationUpdatesRequestSchema,
	ListConversationUpdatesResponseSchema,
	SecretsModeSchema,
	WatchConversationUpdatesRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { ConversationEventSchema } from "../../gen/conversations/v1/event_pb.js";
import {
	GetRefusedPostRequestSchema,
	ListRefusedPostsRequestSchema,
	RefusalReasonSchema,
	RefusedPostSchema,
	RetryRefusedPostsResponseSchema,
} from "../../gen/conversations/v1/refused_post_service_pb.js";
import { GROUPS as COUNT_GROUPS } from "../../src/conversations/read/count.ts";
import { MAX_VALUES } from "../../src/conversations/read/event-filter.ts";
import { AGENT_KINDS, MAX_IDS, MAX_TAGS, MAX_TITLE_TEXT } from "../../src/conversations/read/filter.ts";
import { FIRST_SEQUENCE } from "../../src/conversations/read/get.ts";
import { MAX_GROUPS, MAX_TOP, GROUPS as USAGE_GROUPS } from "../../src/conversations/read/report-usage.ts";
import { REFUSED_ID } from "../../src/conversations/refused/list-refused-posts.ts";
import { MAX_IDS as MAX_RETRIED } from "../../src/conversations/refused/retry.ts";
import { type ExactJsonObject, isJsonObject } from "../../src/record/json/json-value.ts";
import { deriveJsonSchemas, type JsonSchemas } from "../../src/record/json-schema.ts";
import { type MessagePlan, planMessage } from "../../src/record/plan/plan.ts";
import { MAX_QUERY } from "../../src/search/query.ts";
import { MAX_ID_LENGTH } from "../../src/store/event-condition.ts";
import { gapKinds } from "../../src/store/gaps.ts";
import { TAG } from "../../src/transports/reads/parameters.ts";
import { MAX_INT32, MAX_INT64 } from "../../src/transports/reads/query.ts";
import { CONVERSATIONS_PATH } from "../../src/transports/reads/reads.ts";
import { REFUSED_POSTS_PATH } from "../../src/transports/reads/refused-posts.ts";
import { SEARCH_PATH } from "../../src/transports/reads/search.ts";
import { USAGE_PATH } from "../../src/transports/reads/usage.ts";
import { EVENTS_WATCH_PATH, LAST_EVENT_ID, UPDATES_WATCH_PATH } from "../../src/transports/reads/watches.ts";
import { EVENT_WEBHOOK_PATH, WEBHOOK_PATH } from "../../src/transports/webhook/webhook.ts";
import { EVENTS, EVENTS_REFUSED, FINISHED, LISTED, LISTED_EVENTS, REFUSED, STARTED } from "./examples.ts";

const COMPONENTS = "#/components/schemas/";
const SEQUENCE: ExactJsonObject = { type: "integer", format: "int64", minimum: 0, maximum: MAX_INT64 };

/**
 * Returns the HTTP interface as an OpenAPI 3.1.0 document (specification, "Endpoints", "Errors" and "Versioning"): the
 * webhooks and the JSON reads, without a base path.
 *
 * @param plan plan of the record that the conversation webhook takes
 */
export function openApiDocument(plan: MessagePlan): ExactJsonObject {
	return {
		openapi: "3.1.0",
		info: {
			title: "Conversation Update Webhook Service",
			summary: "Receives an agent server's conversation updates and serves the conversations to other services.",
			version: "0.0.1",
		},
		paths: {
			[WEBHOOK_PATH]: { post: conversationWebhook(plan) },
			[`${EVENT_WEBHOOK_PATH}/{conversation_id}`]: { post: eventWebhook() },
			[CONVERSATIONS_PATH]: { get: listConversations() },
			[`${CONVERSATIONS_PATH}/counts`]: { get: countConversations() },
			"/api/v1/senders": { get: listSenders() },
			[`${CONVERSATIONS_PATH}/{id}`]: { get: getConversation(plan), delete: deleteConversation() },
			[`${CONVERSATIONS_PATH}/{id}/updates`]: { get: listUpdates() },
			[`${CONVERSATIONS_PATH}/{id}/events`]: { get: listEvents() },
			[`${CONVERSATIONS_PATH}/{id}/gaps`]: { get: listGaps() },
			[UPDATES_WATCH_PATH]: { get: watchUpdates() },
			[EVENTS_WATCH_PATH]: { get: watchEvents() },
			[USAGE_PATH]: { get: reportUsage() },
			[REFUSED_POSTS_PATH]: { get: listRefusedPosts() },
			[`${REFUSED_POSTS_PATH}:retry`]: { post: retryRefusedPosts() },
			[`${REFUSED_POSTS_PATH}/{id}`]: { get: getRefusedPost() },
			[SEARCH_PATH]: { get: searchConversations() },
		},
		components: {
			schemas: {
				...deriveJsonSchemas(plan, COMPONENTS),
				...deriveJsonSchemas(planMessage(ListConversationsResponseSchema), COMPONENTS),
				...updateSchemas(),
				...eventSchemas(),
				...ANSWERS,
			},
			securitySchemes: { APIKeyHeader: { type: "apiKey", in: "header", name: "X-Access-Token" } },
		},
		tags: [
			{ name: "Webhooks", description: "Endpoints that an agent server calls." },
			{ name: "Conversations", description: "Endpoints that return received conversations and events." },
		],
	};
}

function conversationWebhook(plan: MessagePlan): ExactJsonObject {
	return {
		operationId: "on_conversation_update_api_v1_webhooks_conversations_post",
		summary: "Store a conversation's record after the conversation started, paused, resumed or was deleted",
		...webhook({
			body: "The whole record. May be sent with the content coding gzip.",
			content: jsonOf(plan.desc.name, {
				started: { summary: "A conversation that has started", value: STARTED },
				finished: { summary: "The same conversation after it ran", value: FINISHED },
			}),
			taken: "The record is on disk.",
			refused: "The record breaks rules.",
			example: { summary: "One member is missing, another one is out of bounds", value: REFUSED },
		}),
	};
}

function eventWebhook(): ExactJsonObject {
	const examples = { finished: { summary: "The agent answers and has finished", value: EVENTS } };
	return {
		operationId: "on_event_api_v1_webhooks_events__conversation_id__post",
		summary: "Store a batch of a conversation's events",
		parameters: [pathParameter(IngestConversationEventsRequestSchema.field.conversationId)],
		...webhook({
			body: "The events, in the order in which they were made. May be sent with the content coding gzip.",
			content: jsonOf(ConversationEventSchema.name, examples, true),
			taken: "All events are on disk. An event whose id is stored already is skipped.",
			refused: "An event breaks rules, or the id in the path is not a UUID. No event of the batch was stored.",
			example: { summary: "The second event has no kind", value: EVENTS_REFUSED },
		}),
	};
}

/** Returns the part of an operation that both webhooks have in common. */
function webhook(texts: {
	readonly body: string;
	readonly content: ExactJsonObject;
	readonly taken: string;
	readonly refused: string;
	readonly example: ExactJsonObject;
}): ExactJsonObject {
	return {
		tags: ["Webhooks"],
		security: [{ APIKeyHeader: [] }],
		requestBody: { description: texts.body, required: true, content: texts.content },
		responses: {
			200: { description: texts.taken, content: jsonOf("Success") },
			400: failure("The gzip data is damaged."),
			...REFUSALS,
			413: failure("The body is larger than the limit."),
			415: failure("The body is not JSON, or has a content coding other than gzip."),
			422: { description: texts.refused, content: jsonOf("HTTPValidationError", { refused: texts.example }) },
		},
	};
}

function getConversation(plan: MessagePlan): ExactJsonObject {
	return {
		operationId: "get_conversation",
		summary: "The current record of a conversation, or the one that was current at a sequence number",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [
			pathParameter(GetConversationRequestSchema.field.id),
			parameter(GetConversationRequestSchema.field.sequence),
			parameter(GetConversationRequestSchema.field.secrets),
		],
		responses: {
			200: {
				description: "The record, in the form that the webhook accepts.",
				content: jsonOf(plan.desc.name, { finished: { value: FINISHED } }),
			},
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
			404: failure("There is no such conversation, or there was none at that sequence number."),
			410: failure("The record that was current at that sequence number has been pruned."),
		},
	};
}

function deleteConversation(): ExactJsonObject {
	const { field } = DeleteConversationRequestSchema;
	const erased = { type: "integer", description: "Number of conversations that were erased." };
	const schema = { type: "object", properties: { erased }, required: ["erased"] };
	return {
		operationId: "delete_conversation",
		summary: "Erases a conversation for good; the key needs the scope erase",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [pathParameter(field.id), parameter(field.withChildren)],
		responses: {
			200: { description: "It was erased.", content: { "application/json": { schema } } },
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
			404: failure("There is no such conversation."),
		},
	};
}

/** Fields of the filter that are query parameters: the repeatable `execution_status` stands for both fields of statuses. */
const FILTER = ConversationFilterSchema.fields.filter(({ name }) => name !== "execution_status");

const EVENT_FILTER = ConversationEventFilterSchema.fields;

function listConversations(): ExactJsonObject {
	const { field } = ListConversationsRequestSchema;
	return {
		operationId: "list_conversations",
		summary: "Conversations, by default the one with the newest update first",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [
			...FILTER.map(parameter),
			...[field.orderBy, field.pageSize, field.pageToken, field.view, field.secrets].map(parameter),
		],
		responses: {
			200: {
				description: "A page.",
				content: jsonOf(ListConversationsResponseSchema.name, { one: { value: LISTED } }),
			},
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
		},
	};
}

function countConversations(): ExactJsonObject {
	return {
		operationId: "count_conversations",
		summary: "Numbers of conversations by a value of their current records, the largest first",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [parameter(CountConversationsRequestSchema.field.groupBy), ...FILTER.map(parameter)],
		responses: {
			200: {
				description: "At most 10,000 counts. The member with a value has the name of the group.",
				content: jsonOf("Counts"),
			},
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
		},
	};
}

function listUpdates(): ExactJsonObject {
	const { field } = ListConversationUpdatesRequestSchema;
	return {
		operationId: "list_conversation_updates",
		summary: "Updates of a conversation, the oldest first. For an unknown conversation the list is empty",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [
			{ ...pathParameter(GetConversationRequestSchema.field.id) },
			...[field.afterSequence, field.pageSize, field.pageToken, field.view, field.origin, field.secrets].map(parameter),
		],
		responses: {
			200: { description: "A page.", content: jsonOf(ListConversationUpdatesResponseSchema.name) },
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
			410: failure("Updates of the requested page have been pruned, or after_sequence is beyond the newest update."),
		},
	};
}

function watchUpdates(): ExactJsonObject {
	const { field } = WatchConversationUpdatesRequestSchema;
	return {
		operationId: "watch_conversation_updates",
		summary: "A stream of updates as they are stored",
		...watch("update", [...FILTER, field.view, field.origin, field.secrets]),
	};
}

function watchEvents(): ExactJsonObject {
	const { field } = WatchConversationEventsRequestSchema;
	return {
		operationId: "watch_conversation_events",
		summary: "A stream of events as they are stored",
		...watch("event, with its conversation_id", [...EVENT_FILTER, field.secrets]),
	};
}

/** Returns the part of an operation that both streams have in common. */
function watch(entry: string, fields: readonly DescField[]): ExactJsonObject {
	return {
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [
			{
				name: LAST_EVENT_ID,
				in: "header",
				description:
					"The id that the client received last. The stream resumes after it; after_sequence is ignored then.",
				schema: SEQUENCE,
			},
			{
				name: "after_sequence",
				in: "query",
				description: "The stream starts after this sequence number. 0: from the beginning. Absent: now.",
				schema: SEQUENCE,
			},
			...[WatchConversationUpdatesRequestSchema.field.conversationId, ...fields].map(parameter),
		],
		responses: {
			200: {
				description:
					`Server-sent events. The id of each is its sequence number, and its data is the ${entry}, as JSON in one line as in ` +
					"the list. Heartbeats are comments. The last event of a stream that the service ends has the type end, and as its " +
					"data the status and detail of the error.",
				content: { "text/event-stream": { schema: { type: "string" } } },
			},
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
			410: failure("Requested entries have been pruned, or after_sequence is beyond the newest one."),
		},
	};
}

function listEvents(): ExactJsonObject {
	const { field } = ListConversationEventsRequestSchema;
	return {
		operationId: "list_conversation_events",
		summary: "Events of a conversation, by default the oldest first. For an unknown conversation the list is empty",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [
			{ ...pathParameter(IngestConversationEventsRequestSchema.field.conversationId), name: "id" },
			...EVENT_FILTER.map(parameter),
			...[field.afterSequence, field.beforeSequence, field.order, field.pageSize, field.pageToken, field.secrets].map(
				parameter,
			),
		],
		responses: {
			200: {
				description: "A page.",
				content: jsonOf(ListConversationEventsResponseSchema.name, { run: { value: LISTED_EVENTS } }),
			},
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
			410: failure("Events of the requested page have been pruned, or after_sequence is beyond the newest event."),
		},
	};
}

const GAP_MEMBERS: ExactJsonObject = {
	kind: { type: "string", enum: [...gapKinds] },
	after_event_id: {
		type: ["string", "null"],
		description: "Last event that is known to have come before the missing one.",
	},
	missing_event_id: { type: ["string", "null"] },
	since: { type: "string", format: "date-time", description: "When the gap was noticed." },
	refused_post_id: {
		type: ["string", "null"],
		description: "The refused batch, or for no_record the last refused record.",
	},
};
const UNKNOWN_RELATION: ExactJsonObject = {
	relation: { type: "string", enum: ["parent", "source"] },
	conversation_id: { type: "string", format: "uuid" },
};

function listGaps(): ExactJsonObject {
	const { field } = ListConversationGapsRequestSchema;
	const listOf = (properties: ExactJsonObject) => ({
		type: "array",
		items: { type: "object", properties, required: Object.keys(properties) },
	});
	const properties = {
		gaps: listOf(GAP_MEMBERS),
		unknown_relations: listOf(UNKNOWN_RELATION),
		next_page_token: { type: "string", description: "Empty in the last page." },
	};
	return {
		operationId: "list_conversation_gaps",
		summary: "What is known to be missing of a conversation, the oldest gap first",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [
			{ ...pathParameter(field.conversationId), name: "id" },
			...[field.pageSize, field.pageToken].map(parameter),
		],
		responses: {
			200: {
				description: "A page.",
				content: { "application/json": { schema: { type: "object", properties, required: Object.keys(properties) } } },
			},
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
			404: failure("There is no such conversation."),
		},
	};
}

const COUNTS: ExactJsonObject = { type: "object", additionalProperties: { type: "integer" } };
const SENDER_MEMBERS: ExactJsonObject = {
	name: { type: "string", description: "Name of its access key or client certificate." },
	owner: { type: "string", description: "Owner of what it posts. Empty: none." },
	first_post_at: { type: ["string", "null"], format: "date-time" },
	last_post_at: { type: ["string", "null"], format: "date-time" },
	records: { type: "integer", description: "Number of its records that were stored." },
	events: { type: "integer", description: "Number of its events that were stored." },
	running_conversations: { type: "integer" },
	refusals_last_hour: { ...COUNTS, description: "Number of its refused posts by kind, in steps of five minutes." },
	refusals_last_day: COUNTS,
	clock_skew_seconds: {
		type: ["integer", "null"],
		description: "By how much the times of its events lie before their arrival. Null: not known yet.",
	},
	silent: { type: "boolean", description: "Whether it has been silent for longer than it usually is." },
};

function listSenders(): ExactJsonObject {
	const sender = { type: "object", properties: SENDER_MEMBERS, required: Object.keys(SENDER_MEMBERS) };
	const properties = { senders: { type: "array", items: sender } };
	const schema = { type: "object", properties, required: ["senders"] };
	return {
		operationId: "list_senders",
		summary: "The senders by name: who posts, how much, and what was refused",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		responses: {
			200: { description: "All senders.", content: { "application/json": { schema } } },
			400: failure("A parameter is unknown."),
			...REFUSALS,
		},
	};
}

const NULLABLE_TIME = { type: ["string", "null"], format: "date-time" };

/** Returns the schema of an object whose members are described by the comments of a message's fields. */
function described(message: DescMessage, schemaOf: (field: DescField) => ExactJsonObject): ExactJsonObject {
	const properties = Object.fromEntries(
		message.fields.map((field) => [
			field.name,
			{ ...schemaOf(field), description: comments[`${message.typeName}.${field.name}`] ?? "" },
		]),
	);
	return { type: "object", properties, required: Object.keys(properties) };
}

function refusedPost(): ExactJsonObject {
	return described(RefusedPostSchema, (field) => {
		if (field.fieldKind === "list")
			return { type: "array", items: described(RefusalReasonSchema, () => ({ type: "string" })) };
		if (field.fieldKind === "message") return NULLABLE_TIME;
		if (field.fieldKind !== "scalar") throw new Error(`${field.name} has no schema`);
		if (field.scalar === ScalarType.INT64) return { type: "integer" };
		return { type: field.scalar === ScalarType.BOOL ? "boolean" : "string" };
	});
}

function listRefusedPosts(): ExactJsonObject {
	const { pageSize, pageToken } = ListRefusedPostsRequestSchema.field;
	const properties = {
		refused_posts: { type: "array", items: refusedPost() },
		next_page_token: { type: "string", description: "Token of the next page. Empty: there are no more." },
	};
	const schema = { type: "object", properties, required: Object.keys(properties) };
	return {
		operationId: "list_refused_posts",
		summary: "Records and batches of events that were refused, the newest first",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [pageSize, pageToken].map(parameter),
		responses: {
			200: { description: "A page.", content: { "application/json": { schema } } },
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
		},
	};
}

function getRefusedPost(): ExactJsonObject {
	const { properties, ...post } = refusedPost();
	const text = (description: string) => ({ type: ["string", "null"], description });
	const bodies = {
		body: text("The body as it arrived. Null: it is not kept, is no text, or the key lacks the scope secrets."),
		body_base64: text("A body that is no text, such as the encoded request of an RPC, in base64."),
	};
	const schema = { ...post, properties: { ...(isJsonObject(properties) ? properties : {}), ...bodies } };
	return {
		operationId: "get_refused_post",
		summary: "A refused post, with its body if the key has the scope secrets",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [pathParameter(GetRefusedPostRequestSchema.field.id)],
		responses: {
			200: { description: "The post.", content: { "application/json": { schema } } },
			400: failure("The id is not that of a refused post, or a parameter is unknown."),
			...REFUSALS,
			404: failure("There is no such post."),
		},
	};
}

function retryRefusedPosts(): ExactJsonObject {
	const request = {
		type: "object",
		properties: {
			ids: { type: "array", items: { type: "string", pattern: REFUSED_ID.source }, maxItems: MAX_RETRIED },
			page_token: { type: "string" },
		},
		additionalProperties: false,
	};
	const schema = described(RetryRefusedPostsResponseSchema, ({ name }) => ({
		type: name === "next_page_token" ? "string" : "integer",
	}));
	return {
		operationId: "retry_refused_posts",
		summary: "Take refused posts in, in the order of their times: those with the given ids, or all",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		requestBody: { required: false, content: { "application/json": { schema: request } } },
		responses: {
			200: { description: "What was done.", content: { "application/json": { schema } } },
			400: failure("The body or a member of it is not valid."),
			...REFUSALS,
			413: failure("The body is larger than 64 KiB."),
		},
	};
}

function reportUsage(): ExactJsonObject {
	const { field } = ReportUsageRequestSchema;
	const asked = [field.from, field.to, field.step, field.timeZone, field.groupBy, field.top];
	const count = { type: "integer", format: "int64" };
	const names = ["prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"];
	const totals = {
		cost: { type: "number", description: "In the currency of the costs in the records." },
		tokens: { type: "object", properties: Object.fromEntries(names.map((name) => [name, count])), required: names },
		calls: { ...count, description: "Number of calls of models." },
		conversations: { ...count, description: "Number of conversations with usage." },
		limited: { type: "boolean", description: "True if a sum is beyond the range of its type and ends at the limit." },
	};
	const required = ["cost", "tokens", "calls", "conversations"];
	const row = {
		type: "object",
		description: "Has a further member for each entry of group_by, named like it, with the value of the group.",
		properties: {
			start: { type: "string", format: "date-time", description: "Start of the period. Absent without a step." },
			rest: { type: "boolean", description: "True in the row that sums up the groups beyond the largest ones." },
			...totals,
		},
		required,
	};
	const report = {
		type: "object",
		properties: { rows: { type: "array", items: row }, total: { type: "object", properties: totals, required } },
		required: ["rows", "total"],
	};
	return {
		operationId: "report_usage",
		summary: "Cost, tokens and calls of models over time",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [...asked, ...FILTER].map(parameter),
		responses: {
			200: {
				description: "The report.",
				content: { "application/json": { schema: report }, "text/csv": { schema: { type: "string" } } },
			},
			400: failure("A parameter is unknown or has an invalid value, or the report has more than 10,000 rows."),
			...REFUSALS,
		},
	};
}

/** Returns the schemas of a page of updates and of its entries. */
function updateSchemas(): JsonSchemas {
	const { FieldMask: _, ...schemas } = deriveJsonSchemas(
		planMessage(ListConversationUpdatesResponseSchema),
		COMPONENTS,
	);
	// A list of paths. The JSON form of protobuf would be one text in camel case.
	const { properties } = schemas.ConversationUpdate ?? {};
	if (isJsonObject(properties)) {
		const description = comments["conversations.v1.ConversationUpdate.changed_fields"] ?? "";
		properties.changed_fields = { type: "array", items: { type: "string" }, description };
	}
	return schemas;
}

function searchConversations(): ExactJsonObject {
	const { field } = SearchConversationsRequestSchema;
	const count = { type: "integer" };
	const range = { type: "object", properties: { start: count, end: count }, required: ["start", "end"] };
	const fields = SearchFieldSchema.values.filter(({ number }) => number !== 0);
	const place = {
		sequence: { type: "integer", format: "int64", description: "Sequence of the event; 0 for the title." },
		field: { type: "string", enum: fields.map(({ localName }) => localName.toLowerCase()) },
		snippet: { type: "string", description: "A part of the text, unchanged." },
		ranges: { type: "array", items: range, description: "What matches, in characters (Unicode code points)." },
	};
	const places = { type: "object", properties: place, required: Object.keys(place) };
	const hit = {
		summary: { $ref: `${COMPONENTS}ConversationSummary` },
		places: { type: "array", items: places, maxItems: 3 },
	};
	const page = {
		hits: { type: "array", items: { type: "object", properties: hit, required: Object.keys(hit) } },
		next_page_token: { type: "string" },
		indexed_through_sequence: { type: "integer", format: "int64" },
	};
	const schema = { type: "object", properties: page, required: Object.keys(page) };
	return {
		operationId: "search_conversations",
		summary: "Conversations whose titles, messages, commands, file names or errors meet a query",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [
			...[field.query, field.orderBy, field.pageSize, field.pageToken].map(parameter),
			...ConversationFilterSchema.fields.filter(({ name }) => name !== "execution_status").map(parameter),
		],
		responses: {
			200: { description: "A page.", content: { "application/json": { schema } } },
			400: failure("A parameter is unknown or has an invalid value."),
			...REFUSALS,
		},
	};
}

/** Returns the schemas of a page of events and of its entries. */
function eventSchemas(): JsonSchemas {
	const schemas = deriveJsonSchemas(planMessage(ListConversationEventsResponseSchema), COMPONENTS);
	// The route omits the conversation id from each entry, because the path has it.
	const { properties } = schemas.ConversationEventEntry ?? {};
	if (isJsonObject(properties)) delete properties.conversation_id;
	return schemas;
}

function pathParameter(field: DescField): ExactJsonObject {
	return { ...parameter(field), in: "path", required: true };
}

/** Names of the parameters for repeated fields whose singular is not the name without its last letter. */
const SINGULAR: Readonly<Record<string, string>> = {
	execution_statuses: "execution_status",
	execution_statuses_not: "execution_status_not",
	kinds_not: "kind_not",
};

/** Returns the query parameter for a field of the request of a read. */
function parameter(field: DescField): ExactJsonObject {
	const description = comments[`${field.parent.typeName}.${field.name}`] ?? "";
	const rules = RULES.get(field) ?? {};
	if (field.fieldKind !== "map" && field.fieldKind !== "list") {
		const isRequired = field.name === "query" ? { required: true } : {};
		return {
			name: field.name,
			in: "query",
			description,
			...isRequired,
			schema: { ...parameterSchema(field), ...rules },
		};
	}
	// The parameter is repeated for each value, so transports/reads names it in the singular.
	const isMap = field.fieldKind === "map";
	const items = !isMap && field.listKind === "enum" ? enumSchema(field.enum) : { type: "string" };
	const { items: ofEach = {}, ...ofAll } = rules;
	return {
		name: SINGULAR[field.name] ?? field.name.replace(/s$/, ""),
		in: "query",
		description: isMap ? `${description} Each as key:value.` : description,
		schema: { type: "array", items: { ...items, ...(isJsonObject(ofEach) ? ofEach : {}) }, ...ofAll },
	};
}

const UUID: ExactJsonObject = { format: "uuid" };
const VALUES: ExactJsonObject = { maxItems: MAX_VALUES };
/** A tag in place of the name of a group. */
const TAG_GROUP = "tag:.+";
const { field: filtered } = ConversationFilterSchema;
const { field: filteredEvents } = ConversationEventFilterSchema;

/** Keywords of the schemas of parameters whose values have rules besides their types, from the code that judges them. */
const RULES: ReadonlyMap<DescField, ExactJsonObject> = new Map([
	[filtered.agentKind, { enum: AGENT_KINDS }],
	[filtered.parentConversationId, UUID],
	[filtered.forkedFromConversationId, UUID],
	[filtered.tags, { maxItems: MAX_TAGS, items: { pattern: TAG.source } }],
	[filtered.titleContains, { maxLength: MAX_TITLE_TEXT }],
	[filtered.ids, { maxItems: MAX_IDS, items: UUID }],
	[filteredEvents.kinds, VALUES],
	[filteredEvents.kindsNot, VALUES],
	[filteredEvents.sources, VALUES],
	[filteredEvents.eventId, { maxLength: MAX_ID_LENGTH }],
	[IngestConversationEventsRequestSchema.field.conversationId, UUID],
	[WatchConversationUpdatesRequestSchema.field.conversationId, UUID],
	[DeleteConversationRequestSchema.field.id, UUID],
	[ListConversationGapsRequestSchema.field.conversationId, UUID],
	[GetConversationRequestSchema.field.id, UUID],
	[GetConversationRequestSchema.field.sequence, { minimum: FIRST_SEQUENCE }],
	[GetRefusedPostRequestSchema.field.id, { pattern: REFUSED_ID.source }],
	[SearchConversationsRequestSchema.field.query, { minLength: 1, maxLength: MAX_QUERY }],
	[ReportUsageRequestSchema.field.top, { maximum: MAX_TOP }],
	[
		ReportUsageRequestSchema.field.groupBy,
		{ maxItems: MAX_GROUPS, uniqueItems: true, items: { pattern: oneOf(USAGE_GROUPS) } },
	],
	[CountConversationsRequestSchema.field.groupBy, { pattern: oneOf([...COUNT_GROUPS.keys()]) }],
]);

/** Returns the pattern of one of some names of groups, or of a tag. */
function oneOf(names: readonly string[]): string {
	return `^(${[...names, TAG_GROUP].join("|")})$`;
}

/** @throws Error for a type of field that no query parameter can have */
function parameterSchema(field: DescField): ExactJsonObject {
	if (field.fieldKind === "enum") return enumSchema(field.enum);
	if (field.fieldKind === "message" && field.message === TimestampSchema)
		return { type: "string", format: "date-time" };
	if (field.fieldKind !== "scalar")
		throw new Error(`${field.parent.typeName}.${field.name} cannot be a query parameter`);
	switch (field.scalar) {
		case ScalarType.INT32:
			return { type: "integer", format: "int32", minimum: 0, maximum: MAX_INT32 };
		case ScalarType.INT64:
			return SEQUENCE;
		case ScalarType.DOUBLE:
			return { type: "number" };
		case ScalarType.BOOL:
			return { type: "boolean" };
		default:
			return { type: "string" };
	}
}

const ENUMS_OF_REQUESTS: ReadonlySet<DescEnum> = new Set([
	...[
		SecretsModeSchema,
		ConversationViewSchema,
		ConversationOrderSchema,
		EventOrderSchema,
		SearchOrderSchema,
		UsageStepSchema,
	],
]);

/** Returns the schema of an enum. An enum of requests becomes a list of words; an enum of the record is referenced. */
function enumSchema(desc: DescEnum): ExactJsonObject {
	if (!ENUMS_OF_REQUESTS.has(desc)) return { $ref: COMPONENTS + desc.name };
	const words = desc.values.filter(({ number }) => number !== 0).map(({ localName }) => localName.toLowerCase());
	return { type: "string", enum: words, default: words[0] ?? "" };
}

function failure(description: string, headers?: ExactJsonObject): ExactJsonObject {
	return { description, ...(headers === undefined ? {} : { headers }), content: jsonOf("Failure") };
}

/** @param list whether the JSON is an array of items that the schema describes */
function jsonOf(name: string, examples?: ExactJsonObject, list = false): ExactJsonObject {
	const schema = { $ref: COMPONENTS + name };
	return {
		"application/json": {
			schema: list ? { type: "array", items: schema } : schema,
			...(examples === undefined ? {} : { examples }),
		},
	};
}

const RETRY_AFTER: ExactJsonObject = {
	"Retry-After": { description: "Seconds to wait before the next attempt.", schema: { type: "integer" } },
};

/** Error responses that every operation has. */
const REFUSALS: ExactJsonObject = {
	401: failure("The access key is missing or unknown.", {
		"WWW-Authenticate": { description: "The authentication scheme of the access key.", schema: { type: "string" } },
	}),
	403: failure("The access key or client certificate lacks the required scope."),
	429: failure("The access key or client certificate exceeds its limit of requests per second.", RETRY_AFTER),
	500: failure("The service failed unexpectedly."),
	503: failure("The store cannot be reached now, or the service has too much to do.", RETRY_AFTER),
};

/** Schemas of the responses of the webhooks, as transports/http/answer.ts writes them. */
const ANSWERS: ExactJsonObject = {
	Success: {
		type: "object",
		properties: { success: { type: "boolean", default: true } },
	},
	Counts: {
		type: "object",
		properties: {
			counts: {
				type: "array",
				items: { type: "object", properties: { count: { type: "integer" } }, required: ["count"] },
			},
			total: { type: "integer" },
		},
		required: ["counts", "total"],
	},
	Failure: {
		type: "object",
		properties: { detail: { type: "string" } },
		required: ["detail"],
	},
	HTTPValidationError: {
		type: "object",
		properties: { detail: { type: "array", items: { $ref: `${COMPONENTS}ValidationError` } } },
	},
	ValidationError: {
		type: "object",
		properties: {
			loc: { type: "array", items: { anyOf: [{ type: "string" }, { type: "integer" }] } },
			msg: { type: "string" },
			type: { type: "string" },
			input: {},
			ctx: { type: "object" },
		},
		required: ["loc", "msg", "type"],
	},
};
