import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type CallOptions, Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import {
	createConnectTransport,
	createGrpcTransport,
	createGrpcWebTransport,
	Http2SessionManager,
} from "@connectrpc/connect-node";
import { AccessKeyService } from "../gen/conversations/v1/access_key_service_pb.js";
import { AuditService } from "../gen/conversations/v1/audit_service_pb.js";
import { BudgetService } from "../gen/conversations/v1/budget_service_pb.js";
import { ConversationEraseService } from "../gen/conversations/v1/conversation_erase_service_pb.js";
import { ConversationEventIngestService } from "../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import {
	ConversationEventService,
	type WatchConversationEventsRequestSchema,
} from "../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationGapService } from "../gen/conversations/v1/conversation_gap_service_pb.js";
import { ConversationIngestService } from "../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationOwnerService } from "../gen/conversations/v1/conversation_owner_service_pb.js";
import { ConversationReportService } from "../gen/conversations/v1/conversation_report_service_pb.js";
import { ConversationSearchService } from "../gen/conversations/v1/conversation_search_service_pb.js";
import { ConversationSenderService } from "../gen/conversations/v1/conversation_sender_service_pb.js";
import {
	ConversationService,
	type WatchConversationUpdatesRequestSchema,
} from "../gen/conversations/v1/conversation_service_pb.js";
import { ForwardingService } from "../gen/conversations/v1/forwarding_service_pb.js";
import { RefusedPostService } from "../gen/conversations/v1/refused_post_service_pb.js";
import { ScoreService } from "../gen/conversations/v1/score_service_pb.js";
import { ServiceInfoService } from "../gen/conversations/v1/service_info_service_pb.js";
import { type BadRequest, BadRequestSchema } from "../gen/google/rpc/error_details_pb.js";

export * from "../gen/conversations/v1/access_key_service_pb.js";
export * from "../gen/conversations/v1/agent_pb.js";
export * from "../gen/conversations/v1/audit_service_pb.js";
export * from "../gen/conversations/v1/budget_service_pb.js";
export * from "../gen/conversations/v1/common_pb.js";
export * from "../gen/conversations/v1/condenser_pb.js";
export * from "../gen/conversations/v1/context_pb.js";
export * from "../gen/conversations/v1/conversation_erase_service_pb.js";
export * from "../gen/conversations/v1/conversation_event_ingest_service_pb.js";
export * from "../gen/conversations/v1/conversation_event_service_pb.js";
export * from "../gen/conversations/v1/conversation_gap_service_pb.js";
export * from "../gen/conversations/v1/conversation_ingest_service_pb.js";
export * from "../gen/conversations/v1/conversation_owner_service_pb.js";
export * from "../gen/conversations/v1/conversation_pb.js";
export * from "../gen/conversations/v1/conversation_report_service_pb.js";
export * from "../gen/conversations/v1/conversation_search_service_pb.js";
export * from "../gen/conversations/v1/conversation_sender_service_pb.js";
export * from "../gen/conversations/v1/conversation_service_pb.js";
export * from "../gen/conversations/v1/critic_pb.js";
export * from "../gen/conversations/v1/event_pb.js";
export * from "../gen/conversations/v1/forwarding_service_pb.js";
export * from "../gen/conversations/v1/hooks_pb.js";
export * from "../gen/conversations/v1/llm_pb.js";
export * from "../gen/conversations/v1/refused_post_service_pb.js";
export * from "../gen/conversations/v1/score_service_pb.js";
export * from "../gen/conversations/v1/secrets_pb.js";
export * from "../gen/conversations/v1/security_pb.js";
export * from "../gen/conversations/v1/service_info_service_pb.js";
export * from "../gen/conversations/v1/stats_pb.js";
export * from "../gen/conversations/v1/summary_pb.js";
export * from "../gen/conversations/v1/tools_pb.js";
export * from "../gen/conversations/v1/update_pb.js";
export * from "../gen/conversations/v1/workspace_pb.js";
export type { BadRequest } from "../gen/google/rpc/error_details_pb.js";

/** Address, access key and protocol of the service. */
export interface ConversationsClientOptions {
	/** `http://host:port` of the HTTP listener, or of the gRPC listener if the protocol is `grpc`. */
	readonly baseUrl: string;
	readonly accessKey: string;
	/** Default: `connect`. `connect` and `grpc-web` use HTTP/1.1. */
	readonly protocol?: "connect" | "grpc-web" | "grpc";
}

/** How a watch ends, and how it reconnects after an interruption. Times are in milliseconds. */
export interface WatchOptions {
	/** Ends the watch when it is aborted. The watch then throws the signal's reason. */
	readonly signal?: AbortSignal;
	/** Longest wait before the first retry. It doubles after each attempt that receives no message. Default: 250. */
	readonly backoff?: number;
	/** Longest wait before any retry. Default: 2000. */
	readonly maxBackoff?: number;
	/** Time without a message after which a stream counts as dead: a few heartbeats of the service. Default: 60000. */
	readonly maxSilence?: number;
}

/** Which updates to watch, where to start, and which parts of them to return. */
export type WatchRequest = MessageInitShape<typeof WatchConversationUpdatesRequestSchema>;

/** Which events to watch, where to start, and in which form to return their secrets. */
export type WatchEventsRequest = MessageInitShape<typeof WatchConversationEventsRequestSchema>;

/** Typed clients of the service. */
export type ConversationsClient = Readonly<ReturnType<typeof createConversationsClient>>;

/** Creates clients of the service. They open connections when they need them. */
export function createConversationsClient(options: ConversationsClientOptions) {
	const { transport, disconnect } = createTransport(options);
	const conversations = createClient(ConversationService, transport);
	const events = createClient(ConversationEventService, transport);
	return {
		ingest: createClient(ConversationIngestService, transport),
		conversations,
		eventIngest: createClient(ConversationEventIngestService, transport),
		events,
		search: createClient(ConversationSearchService, transport),
		/** What conversations lack. */
		gaps: createClient(ConversationGapService, transport),
		/** Usage of models. */
		reports: createClient(ConversationReportService, transport),
		/** Who posts. */
		senders: createClient(ConversationSenderService, transport),
		accessKeys: createClient(AccessKeyService, transport),
		/** Who did what. */
		audit: createClient(AuditService, transport),
		/** Assigns conversations to owners. */
		owners: createClient(ConversationOwnerService, transport),
		/** Erases conversations for good. */
		erasing: createClient(ConversationEraseService, transport),
		/** Posts that were refused, and the way to take them in. */
		refusedPosts: createClient(RefusedPostService, transport),
		/** Manages endpoints, to which the service sends what happens. */
		forwarding: createClient(ForwardingService, transport),
		/** Manages budgets, which tell endpoints what is spent. */
		budgets: createClient(BudgetService, transport),
		/** What people and programs think of conversations and of their events. */
		scores: createClient(ScoreService, transport),
		info: createClient(ServiceInfoService, transport),
		/**
		 * Watches updates across restarts of the service and network failures. After an interruption it resumes after the
		 * sequence number of the last message, so that it misses no update and returns none twice. If no message has arrived
		 * yet, it starts again where the request says.
		 *
		 * The watch does not end by itself: leave the loop or abort `signal`. A rate limit does not end it either: it waits as
		 * long as the service asks for.
		 *
		 * @throws ConnectError for errors that a retry cannot resolve, such as `OutOfRange` when updates have been pruned,
		 *   `Unauthenticated`, `PermissionDenied` and `InvalidArgument`
		 */
		watch: (request: WatchRequest = {}, watchOptions: WatchOptions = {}) =>
			watch(conversations.watchConversationUpdates, disconnect, request, watchOptions),
		/** Watches events, as `watch` watches updates. */
		watchEvents: (request: WatchEventsRequest = {}, watchOptions: WatchOptions = {}) =>
			watch(events.watchConversationEvents, disconnect, request, watchOptions),
	};
}

/**
 * Returns the details of an error about an invalid request; undefined when `error` has none. Each violation has the
 * path of a field in the request (`conversation.workspace.working_dir`), a reason and a description.
 */
export function badRequestOf(error: unknown): BadRequest | undefined {
	return error instanceof ConnectError ? error.findDetails(BadRequestSchema)[0] : undefined;
}

/** Returns a transport, and a function that drops its connections when the peer does not respond any more. */
function createTransport({ baseUrl, accessKey, protocol = "connect" }: ConversationsClientOptions) {
	const authenticate: Interceptor = (next) => (request) => {
		request.header.set("X-Access-Token", accessKey);
		return next(request);
	};
	const shared = { baseUrl, interceptors: [authenticate] };
	if (protocol === "grpc") {
		const sessionManager = new Http2SessionManager(baseUrl);
		return {
			transport: createGrpcTransport({ ...shared, sessionManager }),
			disconnect: () => sessionManager.abort(),
		};
	}
	const createOverHttp1 = protocol === "connect" ? createConnectTransport : createGrpcWebTransport;
	// Over HTTP/1.1 each stream has its own connection, which ends with the stream.
	return { transport: createOverHttp1({ ...shared, httpVersion: "1.1" }), disconnect: () => undefined };
}

/** Start of a watch that resumes. */
interface Resumed {
	readonly start: { readonly case: "afterSequence"; readonly value: bigint };
}

async function* watch<Request extends object, Response extends { readonly sequence: bigint }>(
	call: (request: Request & Partial<Resumed>, options: CallOptions) => AsyncIterable<Response>,
	disconnect: () => void,
	request: Request,
	{ signal, backoff = 250, maxBackoff = 2_000, maxSilence = 60_000 }: WatchOptions,
): AsyncGenerator<Response, never> {
	let next: Request & Partial<Resumed> = request;
	for (let attempt = 0; ; attempt++) {
		let requestedWait = 0;
		signal?.throwIfAborted();
		const stream = new AbortController();
		// If a stream is silent for too long, its peer may have disappeared without closing the connection.
		const giveUp = () => {
			stream.abort();
			disconnect();
		};
		let silence = setTimeout(giveUp, maxSilence);
		try {
			for await (const response of call(next, {
				signal: AbortSignal.any([stream.signal, ...(signal === undefined ? [] : [signal])]),
			})) {
				// The time in which the caller handles the response does not count as silence.
				clearTimeout(silence);
				attempt = 0;
				next = { ...request, start: { case: "afterSequence", value: response.sequence } };
				yield response;
				silence = setTimeout(giveUp, maxSilence);
			}
		} catch (error) {
			signal?.throwIfAborted();
			if (!stream.signal.aborted && !isTransient(error)) throw error;
			requestedWait = rateLimitWait(error) ?? 0;
		} finally {
			clearTimeout(silence);
			// Leaving the loop does not end the call by itself.
			stream.abort();
		}
		// Half of the wait is random, so that the clients of a restarted service do not all reconnect at once.
		const wait = Math.min(backoff * 2 ** attempt, maxBackoff) * (0.5 + Math.random() / 2);
		await sleep(requestedWait + wait, undefined, signal && { signal }).catch(() => undefined);
	}
}

/** Returns the milliseconds after which a call that exceeded a limit may be repeated. Undefined for another error. */
function rateLimitWait(error: unknown): number | undefined {
	const { code, metadata } = ConnectError.from(error);
	const seconds = metadata.get("Retry-After");
	return code === Code.ResourceExhausted && seconds !== null ? Number(seconds) * 1000 : undefined;
}

/** Returns whether a retry may succeed: the service was unavailable, a limit was exceeded, or the connection was lost. */
function isTransient(error: unknown): boolean {
	const { code, rawMessage, cause } = ConnectError.from(error);
	if (rateLimitWait(error) !== undefined) return true;
	if (code === Code.Unavailable || code === Code.Aborted || code === Code.DeadlineExceeded) return true;
	// How the transports report a stream that was cut off. The service did not send this error.
	if (/^(?:protocol error: |http\/2 stream closed)/.test(rawMessage)) return true;
	return (
		cause instanceof Error &&
		"code" in cause &&
		/^(?:E[A-Z0-9]+|ERR_HTTP2_\w+|ERR_STREAM_\w+)$/.test(String(cause.code))
	);
}
