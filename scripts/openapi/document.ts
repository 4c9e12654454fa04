import { type DescEnum, type DescField, type DescMethod, ScalarType } from "@bufbuild/protobuf";
import { TimestampSchema, ValueSchema } from "@bufbuild/protobuf/wkt";
import { comments } from "../../gen/comments.js";
import { DeleteConversationRequestSchema } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import {
	ConversationEventFilterSchema,
	ConversationEventService,
	ListConversationEventsRequestSchema,
	WatchConversationEventsRequestSchema,
} from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { ListConversationGapsRequestSchema } from "../../gen/conversations/v1/conversation_gap_service_pb.js";
import {
	ConversationReportService,
	CountConversationsRequestSchema,
	ReportUsageRequestSchema,
} from "../../gen/conversations/v1/conversation_report_service_pb.js";
import { SearchConversationsRequestSchema } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import {
	ConversationFilterSchema,
	ConversationService,
	GetConversationRequestSchema,
	ListConversationsRequestSchema,
	ListConversationUpdatesRequestSchema,
	WatchConversationUpdatesRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { ConversationEventSchema } from "../../gen/conversations/v1/event_pb.js";
import {
	GetRefusedPostRequestSchema,
	RefusedPostService,
	RetryRefusedPostsRequestSchema,
} from "../../gen/conversations/v1/refused_post_service_pb.js";
import {
	DeleteScoreRequestSchema,
	ListScoresRequestSchema,
	ReportScoresRequestSchema,
	ScoreService,
} from "../../gen/conversations/v1/score_service_pb.js";
import { scopeOf } from "../../src/access/gate.ts";
import { GROUPS as COUNT_GROUPS } from "../../src/conversations/read/count.ts";
import { MAX_VALUES } from "../../src/conversations/read/events.ts";
import {
	AGENT_KINDS,
	MAX_IDS,
	MAX_SCORES,
	MAX_TAGS,
	MAX_TITLE_TEXT,
	SCORE_CONDITION,
	SCORE_NAME,
} from "../../src/conversations/read/filter.ts";
import { FIRST_SEQUENCE } from "../../src/conversations/read/records.ts";
import { MAX_GROUPS, MAX_TOP, GROUPS as USAGE_GROUPS } from "../../src/conversations/read/report-usage.ts";
import { MAX_IDS as MAX_RETRIED, REFUSED_ID } from "../../src/conversations/refused/list-and-retry.ts";
import { SCORE_GROUPS } from "../../src/conversations/scores.ts";
import { packageJson } from "../../src/package-json.ts";
import { type ExactJsonObject, isJsonObject } from "../../src/record/json/json-value.ts";
import { type MessagePlan, planEnum, planMessage } from "../../src/record/plan.ts";
import { MAX_QUERY } from "../../src/search/query.ts";
import { MAX_ID_LENGTH } from "../../src/store/condition.ts";
import { TRAJECTORY_PATH, trajectoryForms } from "../../src/trajectories/trajectories.ts";
import { isLarge } from "../../src/transports/admission.ts";
import {
	isOfRequests,
	LAST_EVENT_ID,
	MAX_INT32,
	MAX_INT64,
	PAIR,
	type Parameter,
} from "../../src/transports/reads/parameters.ts";
import { JSON_RPCS, type JsonRpc, MAX_JSON_BODY } from "../../src/transports/reads/reads.ts";
import { EVENT_WEBHOOK_PATH, WEBHOOK_PATH } from "../../src/transports/webhook/webhook.ts";
import { EVENTS, EVENTS_REFUSED, FINISHED, LISTED, LISTED_EVENTS, REFUSED, STARTED } from "./examples.ts";
import { deriveJsonSchemas, type JsonSchemas } from "./json-schema.ts";

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
			version: packageJson().version,
		},
		paths: {
			[WEBHOOK_PATH]: { post: conversationWebhook(plan) },
			[`${EVENT_WEBHOOK_PATH}/{conversation_id}`]: { post: eventWebhook() },
			...readsByPath(plan),
			[TRAJECTORY_PATH]: { get: trajectory() },
		},
		components: {
			schemas: {
				...responseSchemas(),
				// After the responses, because a record has its own rules in them, too.
				...deriveJsonSchemas(planMessage(ConversationEventSchema), COMPONENTS),
				...deriveJsonSchemas(plan, COMPONENTS),
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
		parameters: [
			parameter({
				name: "conversation_id",
				in: "path",
				field: IngestConversationEventsRequestSchema.field.conversationId,
				holder: undefined,
			}),
		],
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

/** Returns the operations of the table of JSON reads and writes, by path. */
function readsByPath(plan: MessagePlan): Record<string, ExactJsonObject> {
	const operations: Record<string, ExactJsonObject> = {};
	for (const rpc of JSON_RPCS)
		operations[rpc.path] = { ...operations[rpc.path], [rpc.method.toLowerCase()]: operation(rpc, plan) };
	return operations;
}

/** Returns the operation of the trajectory, which is no RPC. Its formats are described elsewhere. */
function trajectory(): ExactJsonObject {
	return {
		operationId: "get_conversation_trajectory",
		summary: "Returns what an agent did in a conversation, for evaluation and training",
		description:
			"A document in the Agent Trajectory Interchange Format, or messages of a chat with tools. Secrets are redacted.",
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		parameters: [
			parameter({ name: "id", in: "path", field: GetConversationRequestSchema.field.id, holder: undefined }),
			{
				...{ name: "form", in: "query", description: "The format of the response." },
				schema: { type: "string", enum: [...trajectoryForms], default: trajectoryForms[0] },
			},
		],
		responses: {
			200: { description: "The trajectory.", content: jsonOf("Trajectory") },
			400: failure("The id is no UUID, or the form is not known."),
			...REFUSALS,
			404: failure("There is no such conversation, or no event of it makes a step."),
			413: failure("The events have more than 64 MiB."),
		},
	};
}

/** Codes that the comments of RPCs name before what they mean, with their HTTP statuses. */
const STATUSES: ReadonlyMap<string, number> = new Map([
	["INVALID_ARGUMENT", 400],
	["FAILED_PRECONDITION", 400],
	["PERMISSION_DENIED", 403],
	["NOT_FOUND", 404],
	["ALREADY_EXISTS", 409],
	["OUT_OF_RANGE", 410],
	["DATA_LOSS", 500],
	["UNAVAILABLE", 503],
]);
const CODE = new RegExp(`\\b(${[...STATUSES.keys()].join("|")}): `);

function operation({ rpc, parameters, hasBody }: JsonRpc, plan: MessagePlan): ExactJsonObject {
	const [text = "", ...errors] = (comments[`${rpc.parent.typeName}.${rpc.name}`] ?? "").split(CODE);
	const isStream = rpc.methodKind === "server_streaming";
	const common = {
		400: failure("A parameter or a member of the body is unknown, or has an invalid value."),
		...REFUSALS,
		...(hasBody
			? {
					413: failure(
						`The body is larger than ${isLarge(scopeOf(rpc)) ? "MAX_BODY_BYTES" : `${MAX_JSON_BODY / 1024} KiB`}.`,
					),
				}
			: {}),
	};
	const own: Record<number, ExactJsonObject> = {};
	for (let n = 0; n < errors.length; n += 2) {
		const status = STATUSES.get(errors[n] ?? "");
		const meaning = (errors[n + 1] ?? "").trim().replace(/^./, (letter) => letter.toUpperCase());
		if (status !== undefined && !Object.hasOwn(common, status)) own[status] = failure(meaning);
	}
	const listed = [...(isStream ? [RESUMED] : []), ...parameters.map(parameter)];
	const taken = new Set(parameters.map(({ field }) => field));
	const members = rpc.input.fields.filter((field) => !taken.has(field));
	return {
		operationId: rpc.name.replace(/\B[A-Z]/g, (letter) => `_${letter}`).toLowerCase(),
		summary: /^[^.]*/.exec(text)?.[0] ?? "",
		description: text.trim(),
		tags: ["Conversations"],
		security: [{ APIKeyHeader: [] }],
		...(listed.length > 0 ? { parameters: listed } : {}),
		...(hasBody
			? { requestBody: { required: true, content: { "application/json": { schema: bodySchema(members) } } } }
			: {}),
		responses: { 200: { description: descriptionOf(rpc), content: contentOf(rpc, plan) }, ...common, ...own },
	};
}

const RESUMED: ExactJsonObject = {
	name: LAST_EVENT_ID,
	in: "header",
	description: "The id that the client received last. The stream resumes after it; after_sequence is ignored then.",
	schema: SEQUENCE,
};

function descriptionOf(rpc: DescMethod): string {
	if (rpc.methodKind !== "server_streaming") return comments[rpc.output.typeName] ?? "";
	return (
		"Server-sent events. The id of each is its sequence number, and its data is the entry as JSON in one line as in the " +
		"list, with its conversation_id. Heartbeats are comments. The last event of a stream that the service ends has the " +
		"type end, and as its data the status and detail of the error."
	);
}

function contentOf(rpc: DescMethod, plan: MessagePlan): ExactJsonObject {
	if (rpc.methodKind === "server_streaming") return { "text/event-stream": { schema: { type: "string" } } };
	switch (rpc) {
		case ConversationService.method.getConversation:
			return jsonOf(plan.desc.name, { finished: { value: FINISHED } });
		case ConversationService.method.listConversations:
			return { ...jsonOf(rpc.output.name, { one: { value: LISTED } }), "text/csv": { schema: { type: "string" } } };
		case ConversationEventService.method.listConversationEvents:
			return jsonOf(rpc.output.name, { run: { value: LISTED_EVENTS } });
		case ConversationReportService.method.reportUsage:
		case ScoreService.method.reportScores:
			return { ...jsonOf(rpc.output.name), "text/csv": { schema: { type: "string" } } };
		default:
			return jsonOf(rpc.output.name);
	}
}

/**
 * Returns the schemas of the responses, and of all messages in them. Those are changed whose form
 * src/transports/reads/reads.ts makes.
 */
export function responseSchemas(): JsonSchemas {
	const schemas: JsonSchemas = {};
	for (const { rpc } of JSON_RPCS) {
		const isRecord = rpc === ConversationService.method.getConversation;
		// It has bytes, which no record has.
		const isPost = rpc === RefusedPostService.method.getRefusedPost;
		if (rpc.methodKind === "unary" && !isRecord && !isPost)
			Object.assign(schemas, deriveJsonSchemas(planMessage(rpc.output), COMPONENTS, true));
	}
	const { FieldMask: _, Duration: __, ...others } = schemas;
	const text = (description: string) => ({ type: ["string", "null"], description });
	const changes: readonly [name: string, Change][] = [
		// A list of paths. The JSON form of protobuf would be one text in camel case.
		[
			"ConversationUpdate",
			{
				members: {
					changed_fields: {
						type: "array",
						items: { type: "string" },
						description: comments["conversations.v1.ConversationUpdate.changed_fields"] ?? "",
					},
				},
			},
		],
		["ConversationEventEntry", { members: { conversation_id: undefined } }],
		["ConversationEntry", { members: {}, sometimes: ["scores"] }],
		// In a body it can be left out.
		["ConversationFilter", { members: {}, sometimes: ["scores"] }],
		[
			"ConversationCount",
			{
				members: { value: undefined },
				description: "Number of conversations with a value, which the member with the name of the group has.",
			},
		],
		[
			"UsageRow",
			{
				from: "UsageTotals",
				members: {
					start: {
						type: "string",
						format: "date-time",
						description: comments["conversations.v1.UsageRow.start"] ?? "",
					},
					rest: { type: "boolean", description: comments["conversations.v1.UsageRow.is_rest"] ?? "" },
				},
				description: "Has a further member for each entry of group_by, named like it, with the value of the group.",
			},
		],
		[
			"Sender",
			{
				members: {
					clock_skew: undefined,
					clock_skew_seconds: {
						type: ["integer", "null"],
						format: "int64",
						description: `In seconds. ${comments["conversations.v1.Sender.clock_skew"] ?? ""}`,
					},
				},
				always: ["clock_skew_seconds"],
			},
		],
		[
			"GetRefusedPostResponse",
			{
				from: "RefusedPost",
				members: {
					body: text("The body as it arrived. Null: it is not kept, is no text, or the key lacks the scope secrets."),
					body_base64: text("A body that is no text, such as the encoded request of an RPC, in base64."),
				},
				always: ["body", "body_base64"],
			},
		],
	];
	return {
		...others,
		...Object.fromEntries(changes.map(([name, change]) => [name, changed(others[change.from ?? name] ?? {}, change)])),
	};
}

/** How the JSON form of an object differs from that of its message. */
interface Change {
	/** Name of the message whose members the object has, if it is another one. */
	readonly from?: string;
	/** Schemas of further members; undefined for one that the object lacks. */
	readonly members: Readonly<Record<string, ExactJsonObject | undefined>>;
	/** Names of the further members that the object always has. */
	readonly always?: readonly string[];
	/** Names of the members of the message that the object may lack. */
	readonly sometimes?: readonly string[];
	readonly description?: string;
}

function changed(
	schema: ExactJsonObject,
	{ members, always = [], sometimes = [], description }: Change,
): ExactJsonObject {
	const { properties, required } = schema;
	const all = { ...(isJsonObject(properties) ? properties : {}), ...members };
	const kept = Object.entries(all).flatMap(([name, one]) => (one === undefined ? [] : [[name, one] as const]));
	const isPresent = (name: string) => all[name] !== undefined && !sometimes.includes(name);
	const present = (Array.isArray(required) ? required : []).map(String).filter(isPresent);
	return {
		...schema,
		...(description === undefined ? {} : { description }),
		properties: Object.fromEntries(kept),
		required: [...present, ...always],
	};
}

/** Returns the schema of a JSON body with these fields. */
function bodySchema(fields: readonly DescField[]): ExactJsonObject {
	const properties: ExactJsonObject = {};
	for (const field of fields) {
		const { items: ofEach, ...ofAll } = RULES.get(field) ?? {};
		const value = valueSchema(field, ofEach);
		const description = comments[`${field.parent.typeName}.${field.name}`] ?? "";
		properties[field.name] = { ...collectionOf(field, value), ...ofAll, description };
	}
	return { type: "object", properties, additionalProperties: false };
}

function collectionOf({ fieldKind }: DescField, value: ExactJsonObject): ExactJsonObject {
	if (fieldKind === "list") return { type: "array", items: value };
	return fieldKind === "map" ? { type: "object", additionalProperties: value } : value;
}

/** Returns the schema of a value of a field, or of each of its values, with further keywords. */
function valueSchema({ enum: desc, message, scalar }: DescField, keywords: unknown): ExactJsonObject {
	const further = isJsonObject(keywords) ? keywords : {};
	if (desc !== undefined) return { ...enumSchema(desc), ...further };
	if (message === TimestampSchema) return { type: "string", format: "date-time", ...further };
	if (message === ValueSchema) return { type: ["number", "boolean", "string"], ...further };
	if (message !== undefined) return { ...bodySchema(message.fields), ...further };
	return { ...scalarSchema(scalar), ...further };
}

/** Returns the parameter for a field of a request. */
function parameter({ name, in: place, field }: Parameter): ExactJsonObject {
	const comment = comments[`${field.parent.typeName}.${field.name}`] ?? "";
	const { items: ofEach, ...ofAll } = RULES.get(field) ?? {};
	const value = valueSchema(field, ofEach);
	const isRepeated = field.fieldKind === "list" || field.fieldKind === "map";
	return {
		name,
		in: place,
		description: field.fieldKind === "map" ? `${comment} Each as key:value.` : comment,
		...(place === "path" || REQUIRED.has(field) ? { required: true } : {}),
		schema: isRepeated ? { type: "array", items: value, ...ofAll } : { ...value, ...ofAll },
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
	[filtered.tags, { maxItems: MAX_TAGS, items: { pattern: PAIR.source } }],
	[filtered.titleContains, { maxLength: MAX_TITLE_TEXT }],
	[filtered.ids, { maxItems: MAX_IDS, items: UUID }],
	[filteredEvents.kinds, VALUES],
	[filteredEvents.kindsNot, VALUES],
	[filteredEvents.sources, VALUES],
	[filteredEvents.eventId, { maxLength: MAX_ID_LENGTH }],
	[IngestConversationEventsRequestSchema.field.conversationId, UUID],
	[WatchConversationUpdatesRequestSchema.field.conversationId, UUID],
	[WatchConversationEventsRequestSchema.field.conversationId, UUID],
	[ListConversationEventsRequestSchema.field.conversationId, UUID],
	[ListConversationUpdatesRequestSchema.field.conversationId, UUID],
	[RetryRefusedPostsRequestSchema.field.ids, { maxItems: MAX_RETRIED, items: { pattern: REFUSED_ID.source } }],
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
	[filtered.scores, { maxItems: MAX_SCORES, items: { pattern: SCORE_CONDITION.source } }],
	[ListConversationsRequestSchema.field.scoreNames, { items: { pattern: SCORE_NAME.source } }],
	[ListScoresRequestSchema.field.conversationId, UUID],
	[ListScoresRequestSchema.field.name, { pattern: `${SCORE_NAME.source}|^$` }],
	[DeleteScoreRequestSchema.field.conversationId, UUID],
	[DeleteScoreRequestSchema.field.name, { pattern: SCORE_NAME.source }],
	[ReportScoresRequestSchema.field.name, { pattern: SCORE_NAME.source }],
	[
		ReportScoresRequestSchema.field.groupBy,
		{ maxItems: MAX_GROUPS, uniqueItems: true, items: { pattern: oneOf(SCORE_GROUPS) } },
	],
]);

/** Fields without which a request is refused. */
const REQUIRED: ReadonlySet<DescField> = new Set([
	SearchConversationsRequestSchema.field.query,
	ListScoresRequestSchema.field.conversationId,
	ReportScoresRequestSchema.field.name,
]);

/** Returns the pattern of one of some names of groups, or of a tag. */
function oneOf(names: readonly string[]): string {
	return `^(${[...names, TAG_GROUP].join("|")})$`;
}

function scalarSchema(type: ScalarType | undefined): ExactJsonObject {
	switch (type) {
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

/** Returns the schema of an enum. An enum of requests becomes a list of words; an enum of the record is referenced. */
function enumSchema(desc: DescEnum): ExactJsonObject {
	if (!isOfRequests(desc)) return { $ref: COMPONENTS + desc.name };
	const words = [...planEnum(desc).byName.keys()];
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

/** Schemas of the responses of the webhooks, as transports/http/exchange.ts writes them. */
const ANSWERS: ExactJsonObject = {
	Trajectory: { type: "object", description: "A trajectory in one of its formats.", additionalProperties: true },
	Success: {
		type: "object",
		properties: { success: { type: "boolean", default: true } },
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
