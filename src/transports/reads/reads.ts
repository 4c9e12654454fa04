import { isUtf8 } from "node:buffer";
import {
	type DescMessage,
	type DescMethod,
	type DescMethodServerStreaming,
	type DescMethodUnary,
	isMessage,
	type Message,
	type MessageShape,
	toBinary,
} from "@bufbuild/protobuf";
import { AuditService } from "../../../gen/conversations/v1/audit_service_pb.js";
import { BudgetService } from "../../../gen/conversations/v1/budget_service_pb.js";
import { ConversationEraseService } from "../../../gen/conversations/v1/conversation_erase_service_pb.js";
import {
	ConversationEventService,
	type WatchConversationEventsRequestSchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationGapService } from "../../../gen/conversations/v1/conversation_gap_service_pb.js";
import { ConversationReportService } from "../../../gen/conversations/v1/conversation_report_service_pb.js";
import { ConversationSearchService } from "../../../gen/conversations/v1/conversation_search_service_pb.js";
import {
	ConversationSenderService,
	SenderSchema,
} from "../../../gen/conversations/v1/conversation_sender_service_pb.js";
import {
	ConversationService,
	ConversationView,
	type WatchConversationUpdatesRequestSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { ForwardingService } from "../../../gen/conversations/v1/forwarding_service_pb.js";
import { RefusedPostSchema, RefusedPostService } from "../../../gen/conversations/v1/refused_post_service_pb.js";
import { ScoreService } from "../../../gen/conversations/v1/score_service_pb.js";
import { scopeOf } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import type { ConversationReads, Reads } from "../../conversations/conversation-reads.ts";
import { eventJson } from "../../conversations/read/events.ts";
import { encodeSummary } from "../../conversations/read/records.ts";
import { updateJson } from "../../conversations/read/updates.ts";
import { ServiceError } from "../../errors.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import { jsonFormOf } from "../../record/json/json-form.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject } from "../../record/json/json-value.ts";
import { planMessage } from "../../record/plan.ts";
import type { RecordFormat } from "../../record/record-format.ts";
import { auditSecrets, secretsFormOf } from "../../rpc/request-fields.ts";
import type { RpcMethod, StreamRpc, UnaryRpc } from "../../rpc/rpc-method.ts";
import type { Store } from "../../store/store.ts";
import { isLarge } from "../admission.ts";
import { readBody } from "../http/body.ts";
import { type EventStreamOptions, sendEventStream } from "../http/event-stream.ts";
import type { ContentResponse } from "../http/exchange.ts";
import type { Route, RouteRequest } from "../http/router.ts";
import { lastEventId, type Parameter, parametersOf, readRequest } from "./parameters.ts";
import { listCsv, prefersCsv, scoresCsv, scoresJson, usageCsv, usageJson } from "./report-forms.ts";

const senderPlan = planMessage(SenderSchema);
const refusedPostPlan = planMessage(RefusedPostSchema);

export const MAX_JSON_BODY = 65_536;

/** An RPC that can also be called with a path and JSON. */
export interface JsonRpc {
	readonly method: Route["method"];
	/** Path under the configured base path. A variable `{name}` is a field of the request, as {@link parametersOf} says. */
	readonly path: string;
	readonly rpc: DescMethod;
	readonly parameters: readonly Parameter[];
	/** Whether the fields that are no parameters of the path come from a JSON body. */
	readonly hasBody: boolean;
	readonly mount: (context: JsonRpcContext) => Route["handle"];
}

interface JsonRpcContext {
	readonly methods: readonly RpcMethod[];
	/** What a caller can read. There is no other way for a route to read conversations, so each is limited. */
	readonly reads: Pick<ConversationReads, "of">;
	readonly store: Pick<Store, "tables">;
	readonly format: RecordFormat;
	readonly maxBodyBytes: number;
	readonly stream: EventStreamOptions;
}

interface Call extends RouteRequest {
	readonly caller: Principal;
	readonly reads: Reads;
	readonly format: RecordFormat;
}

/**
 * All RPCs that can be called with a path and JSON, in the order of the OpenAPI document, which is derived from them.
 *
 * - The scope is that of the RPC. The fields of the request are variables of the path; the others are parameters of the
 *   query, or for POST and PATCH members of a JSON body.
 * - The response has the JSON form of the RPC's response (json-form.ts), unless `form` or `text` gives it another one. Such
 *   a form is described in scripts/openapi/document.ts.
 */
export const JSON_RPCS: readonly JsonRpc[] = [
	unary("GET", "/api/v1/conversations", ConversationService.method.listConversations, (page, asked, call) => {
		const isCsv = prefersCsv(call.request.headers.accept);
		if (isCsv && asked.view === ConversationView.FULL)
			throw new ServiceError("invalid_argument", "view must be summary for CSV");
		if (isCsv) return listCsv(page, call.search, asked.scoreNames);
		return stringifyExactJson({
			conversations: page.conversations.map(({ sequence, hasRecord, summary, conversation, unreadable, scores }) => ({
				sequence,
				has_record: hasRecord,
				summary: summary === undefined ? null : encodeSummary(summary),
				...(conversation === undefined ? {} : { conversation: call.format.toJson(conversation) }),
				...(unreadable ? { unreadable } : {}),
				...(asked.scoreNames.length === 0 ? {} : { scores: scoresJson(scores) }),
			})),
			next_page_token: page.nextPageToken,
			...(page.totalSize === undefined ? {} : { total_size: page.totalSize }),
		});
	}),
	unary(
		"GET",
		"/api/v1/conversations/counts",
		ConversationReportService.method.countConversations,
		// The member of a value has the name of the group.
		({ counts, total }, { groupBy }) =>
			stringifyExactJson({ counts: counts.map(({ value, count }) => ({ [groupBy]: value, count })), total }),
	),
	unary("GET", "/api/v1/senders", ConversationSenderService.method.listSenders, ({ senders }) => {
		const list = senders.map(({ clockSkew, silent, ...sender }) => ({
			...membersOf(jsonFormOf(senderPlan, sender)),
			clock_skew_seconds: clockSkew?.seconds ?? null,
			silent,
		}));
		return stringifyExactJson({ senders: list });
	}),
	text("/api/v1/conversations/{id}", ConversationService.method.getConversation, async (request, call) => {
		const secrets = secretsFormOf(request.secrets, call.caller);
		return (await call.reads.get.getJson({ id: request.id, sequence: request.sequence, secrets })).conversation;
	}),
	unary("DELETE", "/api/v1/conversations/{id}", ConversationEraseService.method.deleteConversation),
	unary(
		"GET",
		"/api/v1/conversations/{id}/updates",
		ConversationService.method.listConversationUpdates,
		({ updates, nextPageToken }, _, { format }) =>
			`{"updates":[${updates.map((update) => updateJson(update, format)).join(",")}],"next_page_token":"${nextPageToken}"}`,
	),
	text(
		"/api/v1/conversations/{id}/events",
		ConversationEventService.method.listConversationEvents,
		async (request, call) => {
			const secrets = secretsFormOf(request.secrets, call.caller);
			const page = await call.reads.events.listTexts({ ...request, secrets });
			// The events are JSON texts already, so none is parsed and written again.
			return `{"events":[${page.entries.map((event) => eventJson(event)).join(",")}],"next_page_token":"${page.nextPageToken}"}`;
		},
	),
	unary("GET", "/api/v1/conversations/{id}/gaps", ConversationGapService.method.listConversationGaps),
	stream("/api/v1/updates:watch", ConversationService.method.watchConversationUpdates),
	stream("/api/v1/events:watch", ConversationEventService.method.watchConversationEvents),
	unary("GET", "/api/v1/usage", ConversationReportService.method.reportUsage, (report, { groupBy }, { request }) =>
		prefersCsv(request.headers.accept) ? usageCsv(report, groupBy) : usageJson(report, groupBy),
	),
	unary("GET", "/api/v1/refused-posts", RefusedPostService.method.listRefusedPosts),
	unary("POST", "/api/v1/refused-posts:retry", RefusedPostService.method.retryRefusedPosts),
	unary("GET", "/api/v1/refused-posts/{id}", RefusedPostService.method.getRefusedPost, ({ refusedPost, body }) => {
		const isText = body !== undefined && isUtf8(body);
		return stringifyExactJson({
			...(refusedPost && membersOf(jsonFormOf(refusedPostPlan, refusedPost))),
			body: isText ? Buffer.from(body).toString() : null,
			body_base64: body === undefined || isText ? null : Buffer.from(body).toString("base64"),
		});
	}),
	unary("GET", "/api/v1/search", ConversationSearchService.method.searchConversations),
	unary("GET", "/api/v1/audit", AuditService.method.listAudit),
	unary("POST", "/api/v1/endpoints", ForwardingService.method.createEndpoint),
	unary("GET", "/api/v1/endpoints", ForwardingService.method.listEndpoints),
	unary("GET", "/api/v1/endpoints/{name}", ForwardingService.method.getEndpoint),
	unary("PATCH", "/api/v1/endpoints/{name}", ForwardingService.method.updateEndpoint),
	unary("DELETE", "/api/v1/endpoints/{name}", ForwardingService.method.deleteEndpoint),
	unary("POST", "/api/v1/endpoints/{name}:pause", ForwardingService.method.pauseEndpoint),
	unary("POST", "/api/v1/endpoints/{name}:resume", ForwardingService.method.resumeEndpoint),
	unary("POST", "/api/v1/endpoints/{name}:test", ForwardingService.method.testEndpoint),
	unary("POST", "/api/v1/endpoints/{name}:rotate-secret", ForwardingService.method.rotateEndpointSecret),
	unary("POST", "/api/v1/endpoints/{name}:replay", ForwardingService.method.replayEndpoint),
	unary("GET", "/api/v1/endpoints/{name}/deliveries", ForwardingService.method.listDeliveries),
	unary("POST", "/api/v1/endpoints/{name}/deliveries/{id}:retry", ForwardingService.method.retryDelivery),
	unary("POST", "/api/v1/budgets", BudgetService.method.createBudget),
	unary("GET", "/api/v1/budgets", BudgetService.method.listBudgets),
	unary("GET", "/api/v1/budgets/{name}", BudgetService.method.getBudget),
	unary("PATCH", "/api/v1/budgets/{name}", BudgetService.method.updateBudget),
	unary("DELETE", "/api/v1/budgets/{name}", BudgetService.method.deleteBudget),
	unary("POST", "/api/v1/scores", ScoreService.method.setScores),
	unary("GET", "/api/v1/scores", ScoreService.method.listScores),
	unary("GET", "/api/v1/scores/report", ScoreService.method.reportScores, (report, { groupBy }, { request }) =>
		prefersCsv(request.headers.accept) ? scoresCsv(report, groupBy) : scoreReportJson(report),
	),
	unary("DELETE", "/api/v1/conversations/{id}/scores/{name}", ScoreService.method.deleteScore),
];

const scoreReportJson = jsonForm(ScoreService.method.reportScores.output);

/** Returns the routes of {@link JSON_RPCS}. Errors are JSON objects whose `detail` is a sentence. */
export function jsonRoutes(basePath: string, context: JsonRpcContext): readonly Route[] {
	return JSON_RPCS.map(({ method, path, rpc, mount }) => {
		const scope = scopeOf(rpc);
		if (scope === undefined) throw new Error(`${rpc.name} has no scope`);
		const isStream = rpc.methodKind === "server_streaming" && { isStream: true as const };
		return { method, path: basePath + path, scope, ...isStream, handle: mount(context) };
	});
}

/** Returns the JSON text of a response, or a response with a media type of its own. */
type Form<I extends DescMessage, O extends DescMessage> = (
	response: MessageShape<O>,
	request: MessageShape<I>,
	call: Call,
) => string | ContentResponse;

function jsonForm(output: DescMessage): (response: Message) => string {
	const plan = planMessage(output);
	return (response) => stringifyExactJson(jsonFormOf(plan, response));
}

/** Defines a call that is answered by the implementation of the RPC. */
function unary<I extends DescMessage, O extends DescMessage>(
	method: Route["method"],
	path: string,
	rpc: DescMethodUnary<I, O>,
	form: Form<I, O> = jsonForm(rpc.output),
): JsonRpc {
	return define(method, path, rpc, async (request, call, { methods }) => {
		const implementation = methods.find((one): one is UnaryRpc => one.method === rpc && one.kind === "unary");
		const response = await implementation?.answer?.(request, call.caller, call.signal);
		if (!isMessage(response, rpc.output)) throw new Error(`${rpc.name} is not mounted`);
		return form(response, request, call);
	});
}

/** Defines a call that is answered by a text whose parts come from the store. */
function text<I extends DescMessage, O extends DescMessage>(
	path: string,
	rpc: DescMethodUnary<I, O>,
	answer: (request: MessageShape<I>, call: Call) => Promise<string>,
): JsonRpc {
	return define("GET", path, rpc, async (request, call, { store }) => {
		await auditSecrets(store, request, call.caller);
		return await answer(request, call);
	});
}

/**
 * Defines a stream of server-sent events. The header `Last-Event-ID` takes precedence over `after_sequence`, because a
 * client that resumes sends it with the address of its first request.
 */
function stream<I extends typeof WatchConversationUpdatesRequestSchema | typeof WatchConversationEventsRequestSchema>(
	path: string,
	rpc: DescMethodServerStreaming<I>,
): JsonRpc {
	return define("GET", path, rpc, async (request, call, { methods, stream }) => {
		const implementation = methods.find((one): one is StreamRpc => one.method === rpc && one.kind !== "unary");
		if (implementation === undefined) throw new Error(`${rpc.name} is not mounted`);
		const after = lastEventId(call.request.headers);
		if (after !== undefined) request.start = { case: "afterSequence", value: after };
		const encoded = toBinary(rpc.input, request);
		await sendEventStream(call, (signal) => implementation.stream(encoded, call.caller, signal), stream);
		return undefined;
	});
}

function define<I extends DescMessage>(
	method: Route["method"],
	path: string,
	rpc: DescMethod & { readonly input: I },
	answer: (request: MessageShape<I>, call: Call, context: JsonRpcContext) => ReturnType<Route["handle"]>,
): JsonRpc {
	const hasBody = method === "POST" || method === "PATCH";
	// Of scores no update tells.
	const omitted = rpc.methodKind === "server_streaming" ? ["position", "scores"] : [];
	const parameters = parametersOf(rpc.input, path, hasBody, omitted);
	return {
		...{ method, path, rpc, parameters, hasBody },
		mount: (context) => async (route) => {
			const { request, principal, permit } = route;
			// The gate lets requests without a key through on public routes only.
			if (principal === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
			const maxBytes = isLarge(scopeOf(rpc)) ? context.maxBodyBytes : MAX_JSON_BODY;
			const body = hasBody ? await readBody(request, maxBytes, (bytes) => permit.reserve(bytes)) : undefined;
			const call = { ...route, caller: principal, reads: context.reads.of(principal), format: context.format };
			try {
				return await answer(readRequest(rpc.input, parameters, { ...route, body }), call, context);
			} catch (error) {
				throw namingParameter(error, parameters);
			}
		},
	};
}

/** Returns an error that names the parameter of a field of a filter, where it named the field as an RPC does. */
function namingParameter(error: unknown, parameters: readonly Parameter[]): unknown {
	if (!(error instanceof ServiceError)) return error;
	for (const { name, field, holder } of parameters) {
		const path = `${holder?.name}.${field.name} `;
		if (holder !== undefined && error.message.startsWith(path))
			return new ServiceError(error.kind, `${name} ${error.message.slice(path.length)}`, error);
	}
	return error;
}

function membersOf(json: ExactJson): ExactJsonObject {
	return isJsonObject(json) ? json : {};
}
