import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
	type CallOptions,
	type Client,
	Code,
	ConnectError,
	createClient,
	type Interceptor,
	type Transport,
} from "@connectrpc/connect";
import {
	createConnectTransport,
	createGrpcTransport,
	createGrpcWebTransport,
	Http2SessionManager,
} from "@connectrpc/connect-node";
import { ConversationEventIngestService } from "../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import {
	ConversationEventService,
	type WatchConversationEventsRequestSchema,
	type WatchConversationEventsResponse,
} from "../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationIngestService } from "../gen/conversations/v1/conversation_ingest_service_pb.js";
import {
	ConversationService,
	type WatchConversationUpdatesRequestSchema,
	type WatchConversationUpdatesResponse,
} from "../gen/conversations/v1/conversation_service_pb.js";
import { type BadRequest, BadRequestSchema } from "../gen/google/rpc/error_details_pb.js";

export * from "../gen/conversations/v1/agent_pb.js";
export * from "../gen/conversations/v1/common_pb.js";
export * from "../gen/conversations/v1/condenser_pb.js";
export * from "../gen/conversations/v1/context_pb.js";
export * from "../gen/conversations/v1/conversation_event_ingest_service_pb.js";
export * from "../gen/conversations/v1/conversation_event_service_pb.js";
export * from "../gen/conversations/v1/conversation_ingest_service_pb.js";
export * from "../gen/conversations/v1/conversation_pb.js";
export * from "../gen/conversations/v1/conversation_service_pb.js";
export * from "../gen/conversations/v1/critic_pb.js";
export * from "../gen/conversations/v1/event_pb.js";
export * from "../gen/conversations/v1/hooks_pb.js";
export * from "../gen/conversations/v1/llm_pb.js";
export * from "../gen/conversations/v1/secrets_pb.js";
export * from "../gen/conversations/v1/security_pb.js";
export * from "../gen/conversations/v1/stats_pb.js";
export * from "../gen/conversations/v1/summary_pb.js";
export * from "../gen/conversations/v1/tools_pb.js";
export * from "../gen/conversations/v1/update_pb.js";
export * from "../gen/conversations/v1/workspace_pb.js";
export type { BadRequest } from "../gen/google/rpc/error_details_pb.js";

/** Where the service is, and how to speak to it. */
export interface ConversationsClientOptions {
	/** `http://host:port` of the HTTP listener; of the gRPC listener for the protocol `grpc`. */
	readonly baseUrl: string;
	readonly accessKey: string;
	/** `connect` when left out: over HTTP/1.1, as `grpc-web` is. */
	readonly protocol?: "connect" | "grpc-web" | "grpc";
}

/** How a watch goes on after a break. Times are in milliseconds. */
export interface WatchOptions {
	/** Ends the watch, which then throws the signal's reason. */
	readonly signal?: AbortSignal;
	/** Longest wait before the first attempt after a break. It doubles with each attempt that brings nothing. 250. */
	readonly backoff?: number;
	/** Longest wait before any attempt. 15000. */
	readonly maxBackoff?: number;
	/** Silence after which a stream is taken to be dead: a few times the service's heartbeat. 60000. */
	readonly maxSilence?: number;
}

/** What to watch: where to start, which updates, and how much of them. */
export type WatchRequest = MessageInitShape<typeof WatchConversationUpdatesRequestSchema>;

/** What to watch of events: where to start, which events, and how their secrets are shown. */
export type WatchEventsRequest = MessageInitShape<typeof WatchConversationEventsRequestSchema>;

/** Typed clients of the service. */
export interface ConversationsClient {
	readonly ingest: Client<typeof ConversationIngestService>;
	readonly conversations: Client<typeof ConversationService>;
	readonly eventIngest: Client<typeof ConversationEventIngestService>;
	readonly events: Client<typeof ConversationEventService>;
	/**
	 * Follows updates through restarts of the service and breaks of the network: after a break it goes on after the
	 * sequence number of the last message, so that nothing is missed and nothing given twice. Before the first message it
	 * starts again where the request says.
	 *
	 * It does not end by itself; leave the loop or fire `signal`.
	 *
	 * @throws ConnectError for what another attempt cannot mend: among others `OutOfRange` when updates have been pruned,
	 *   `Unauthenticated`, `PermissionDenied` and `InvalidArgument`
	 */
	watch(request?: WatchRequest, options?: WatchOptions): AsyncGenerator<WatchConversationUpdatesResponse, never>;
	/** Follows events, as {@link watch} follows updates. */
	watchEvents(
		request?: WatchEventsRequest,
		options?: WatchOptions,
	): AsyncGenerator<WatchConversationEventsResponse, never>;
}

/** Makes clients of the service. Connections are opened when they are needed. */
export function createConversationsClient(options: ConversationsClientOptions): ConversationsClient {
	const { transport, disconnect } = createTransport(options);
	const conversations = createClient(ConversationService, transport);
	const events = createClient(ConversationEventService, transport);
	return {
		ingest: createClient(ConversationIngestService, transport),
		conversations,
		eventIngest: createClient(ConversationEventIngestService, transport),
		events,
		watch: (request = {}, watchOptions = {}) =>
			watch(conversations.watchConversationUpdates, disconnect, request, watchOptions),
		watchEvents: (request = {}, watchOptions = {}) =>
			watch(events.watchConversationEvents, disconnect, request, watchOptions),
	};
}

/**
 * What was wrong with a request, if `error` says so: each violation names a field by its place in the request
 * (`conversation.workspace.working_dir`), the reason and a description.
 */
export function badRequestOf(error: unknown): BadRequest | undefined {
	return error instanceof ConnectError ? error.findDetails(BadRequestSchema)[0] : undefined;
}

/** A transport, and how to give up its connections when the peer has vanished without a word. */
interface Connection {
	readonly transport: Transport;
	readonly disconnect: () => void;
}

function createTransport({ baseUrl, accessKey, protocol = "connect" }: ConversationsClientOptions): Connection {
	const authenticate: Interceptor = (next) => (request) => {
		request.header.set("X-Access-Token", accessKey);
		return next(request);
	};
	const shared = { baseUrl, interceptors: [authenticate] };
	// Over HTTP/1.1 a stream has a connection of its own, which ends with it.
	const disconnect = (): void => undefined;
	switch (protocol) {
		case "connect":
			return { transport: createConnectTransport({ ...shared, httpVersion: "1.1" }), disconnect };
		case "grpc-web":
			return { transport: createGrpcWebTransport({ ...shared, httpVersion: "1.1" }), disconnect };
		case "grpc": {
			const sessionManager = new Http2SessionManager(baseUrl);
			return {
				transport: createGrpcTransport({ ...shared, sessionManager }),
				disconnect: () => sessionManager.abort(),
			};
		}
	}
}

/** The start of a watch that goes on. */
interface Resumed {
	readonly start: { readonly case: "afterSequence"; readonly value: bigint };
}

async function* watch<Request extends object, Response extends { readonly sequence: bigint }>(
	call: (request: Request & Partial<Resumed>, options: CallOptions) => AsyncIterable<Response>,
	disconnect: () => void,
	request: Request,
	{ signal, backoff = 250, maxBackoff = 15_000, maxSilence = 60_000 }: WatchOptions,
): AsyncGenerator<Response, never> {
	let next: Request & Partial<Resumed> = request;
	for (let attempt = 0; ; attempt++) {
		signal?.throwIfAborted();
		const stream = new AbortController();
		// The peer of a stream that says nothing for too long may have vanished without closing the connection.
		const giveUp = () => {
			stream.abort();
			disconnect();
		};
		let silence = setTimeout(giveUp, maxSilence);
		try {
			for await (const response of call(next, {
				signal: AbortSignal.any([stream.signal, ...(signal === undefined ? [] : [signal])]),
			})) {
				// The time that the caller takes is not the service's.
				clearTimeout(silence);
				attempt = 0;
				next = { ...request, start: { case: "afterSequence", value: response.sequence } };
				yield response;
				silence = setTimeout(giveUp, maxSilence);
			}
		} catch (error) {
			signal?.throwIfAborted();
			if (!stream.signal.aborted && !isTransient(error)) throw error;
		} finally {
			clearTimeout(silence);
			// To leave the loop alone would not end the call.
			stream.abort();
		}
		// Half of it at random, so that the clients of a service that restarts do not all come back at once.
		const wait = Math.min(backoff * 2 ** attempt, maxBackoff);
		await sleep(wait * (0.5 + Math.random() / 2), undefined, signal && { signal }).catch(() => undefined);
	}
}

/** Whether the service may be reached again later, or the connection broke rather than the service refused. */
function isTransient(error: unknown): boolean {
	const { code, rawMessage, cause } = ConnectError.from(error);
	if (code === Code.Unavailable || code === Code.Aborted || code === Code.DeadlineExceeded) return true;
	// A stream that was cut off, as the transports report it: not an answer of the service.
	if (/^(?:protocol error: |http\/2 stream closed)/.test(rawMessage)) return true;
	return (
		cause instanceof Error &&
		"code" in cause &&
		/^(?:E[A-Z0-9]+|ERR_HTTP2_\w+|ERR_STREAM_\w+)$/.test(String(cause.code))
	);
}
