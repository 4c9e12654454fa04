import { create, type DescService, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { AccessKeyService } from "../../gen/conversations/v1/access_key_service_pb.js";
import { AuditService } from "../../gen/conversations/v1/audit_service_pb.js";
import { BudgetService } from "../../gen/conversations/v1/budget_service_pb.js";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { ConversationEventIngestService } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationEventService } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationGapService } from "../../gen/conversations/v1/conversation_gap_service_pb.js";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationOwnerService } from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import { ConversationReportService } from "../../gen/conversations/v1/conversation_report_service_pb.js";
import {
	ConversationSearchService,
	SearchFieldSchema,
} from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { ConversationSenderService } from "../../gen/conversations/v1/conversation_sender_service_pb.js";
import {
	ConversationService,
	GetConversationResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { ForwardingService } from "../../gen/conversations/v1/forwarding_service_pb.js";
import { RefusedPostService } from "../../gen/conversations/v1/refused_post_service_pb.js";
import { ScoreService } from "../../gen/conversations/v1/score_service_pb.js";
import {
	type GetServiceInfoResponseSchema,
	ServiceInfoService,
} from "../../gen/conversations/v1/service_info_service_pb.js";
import { type Principal, posterOf } from "../access/keys.ts";
import type { EventIngest } from "../conversations/ingest/event-ingest.ts";
import type { Ingest } from "../conversations/ingest/ingest.ts";
import { setEncodedField } from "../conversations/read/records.ts";
import { fromMicroseconds } from "../record/json/scalars.ts";
import { planEnum } from "../record/plan.ts";
import { type AdminContext, adminMethods } from "./admin-methods.ts";
import { auditSecrets, secretsFormOf, targetOf, viewOptionsOf } from "./request-fields.ts";
import { type RpcMethod, serverStream, unary, unaryUndecoded } from "./rpc-method.ts";

export const SERVICES: readonly DescService[] = [
	ConversationIngestService,
	ConversationEventIngestService,
	ConversationService,
	ConversationEventService,
	ConversationReportService,
	ConversationSearchService,
	ConversationSenderService,
	ConversationGapService,
	AccessKeyService,
	AuditService,
	ConversationOwnerService,
	RefusedPostService,
	ConversationEraseService,
	ForwardingService,
	BudgetService,
	ScoreService,
	ServiceInfoService,
];

/** Returns what a caller may know of the service. */
export type DescribeService = (caller: Principal) => MessageInitShape<typeof GetServiceInfoResponseSchema>;

interface RpcContext extends AdminContext {
	readonly ingest: Ingest;
	readonly eventIngest: Pick<EventIngest, "request">;
	readonly info: DescribeService;
}

/** The methods of {@link SERVICES}. Every transport mounts this table. */
export function rpcMethods(context: RpcContext): readonly RpcMethod[] {
	const { ingest, eventIngest, reads, store } = context;
	const ingesting = ConversationIngestService.method;
	const ingestingEvents = ConversationEventIngestService.method;
	const reading = ConversationService.method;
	const readingEvents = ConversationEventService.method;
	const { byName: fields } = planEnum(SearchFieldSchema);
	const before = (request: Message, caller: Principal) => auditSecrets(store, request, caller);
	return [
		unaryUndecoded(ingesting.ingestConversation, "conversation", async (encoded, caller, signal) => {
			const { sequence, duplicate, change, current } = await ingest.request(encoded, posterOf(caller), signal);
			return { success: true, sequence, repetition: duplicate, change, current };
		}),
		unaryUndecoded(ingestingEvents.ingestConversationEvents, "events", async (encoded, caller, signal) => {
			const { stored, updateSequence } = await eventIngest.request(encoded, posterOf(caller), signal);
			return { success: true, stored, updateSequence: updateSequence ?? 0n };
		}),
		unary(
			reading.getConversation,
			async ({ id, sequence: asOf, secrets }, caller) => {
				const found = await reads
					.of(caller)
					.get.getEncoded({ id, sequence: asOf, secrets: secretsFormOf(secrets, caller) });
				const receivedAt = fromMicroseconds(found.receivedAt);
				const response = create(GetConversationResponseSchema, { sequence: found.sequence, receivedAt });
				setEncodedField(response, GetConversationResponseSchema.field.conversation, found.conversation);
				return response;
			},
			before,
		),
		unary(
			reading.listConversations,
			async (request, caller) => {
				const page = await reads.of(caller).list.list({ ...request, ...viewOptionsOf(request, caller) });
				const { conversations, nextPageToken, totalSize } = page;
				const size = totalSize === undefined ? {} : { totalSize };
				return { conversations: [...conversations], nextPageToken, ...size };
			},
			before,
		),
		unary(ConversationReportService.method.countConversations, async (request, caller) => {
			const { counts, total } = await reads.of(caller).counts.count(request);
			return { counts: [...counts], total };
		}),
		unary(
			reading.listConversationUpdates,
			async (request, caller) => {
				const page = await reads.of(caller).updates.list({ ...request, ...viewOptionsOf(request, caller) });
				return { updates: [...page.entries], nextPageToken: page.nextPageToken };
			},
			before,
		),
		serverStream(
			reading.watchConversationUpdates,
			(request, caller, signal) => {
				const { filter, origin } = request;
				return reads
					.of(caller)
					.watchUpdates({ ...targetOf(request), filter, origin, view: viewOptionsOf(request, caller) }, signal);
			},
			before,
		),
		unary(
			readingEvents.listConversationEvents,
			async (request, caller) => {
				const page = await reads
					.of(caller)
					.events.list({ ...request, secrets: secretsFormOf(request.secrets, caller) });
				return { events: [...page.entries], nextPageToken: page.nextPageToken };
			},
			before,
		),
		serverStream(
			readingEvents.watchConversationEvents,
			(request, caller, signal) => {
				const { filter, secrets } = request;
				return reads
					.of(caller)
					.watchEvents({ ...targetOf(request), filter, secrets: secretsFormOf(secrets, caller) }, signal);
			},
			before,
		),
		unary(ConversationReportService.method.reportUsage, (request, caller) => reads.of(caller).usage.report(request)),
		unary(ConversationSearchService.method.searchConversations, async (request, caller, signal) => {
			const page = await reads.of(caller).search.search(request, signal);
			return {
				hits: page.hits.map(({ summary, places }) => ({
					summary,
					places: places.map(({ field, ranges, ...place }) => {
						return { ...place, field: fields.get(field) ?? 0, ranges: [...ranges] };
					}),
				})),
				nextPageToken: page.nextPageToken,
				indexedThroughSequence: page.indexedThrough,
			};
		}),
		unary(ConversationGapService.method.listConversationGaps, (request, caller) => reads.of(caller).gaps.list(request)),
		unary(ScoreService.method.setScores, (request, caller) => reads.of(caller).scores.set(request, caller)),
		unary(ScoreService.method.listScores, (request, caller) => reads.of(caller).scores.list(request)),
		unary(ScoreService.method.deleteScore, (request, caller) => reads.of(caller).scores.remove(request, caller)),
		unary(ScoreService.method.reportScores, (request, caller) => reads.of(caller).scores.report(request)),
		...adminMethods(context),
		unary(ConversationSenderService.method.listSenders, async (_, caller) => ({
			senders: await reads.of(caller).senders.list(),
		})),
		unary(ServiceInfoService.method.getServiceInfo, async (_, caller) => context.info(caller)),
	];
}
