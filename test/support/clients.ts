import {
	type DescMessage,
	type DescMethod,
	type DescMethodServerStreaming,
	type DescMethodUnary,
	type DescService,
	fromBinary,
	type JsonValue,
	type MessageShape,
	toBinary,
} from "@bufbuild/protobuf";
import { type Client as ConnectClient, type ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import {
	Client,
	type ClientReadableStream,
	credentials,
	type ServiceError as GrpcError,
	Metadata,
} from "@grpc/grpc-js";
import { AccessKeyService } from "../../gen/conversations/v1/access_key_service_pb.js";
import { ConversationEventIngestService } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationEventService } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationOwnerService } from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import { ConversationReportService } from "../../gen/conversations/v1/conversation_report_service_pb.js";
import { ConversationSearchService } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import { RefusedPostService } from "../../gen/conversations/v1/refused_post_service_pb.js";
import { type BadRequest, BadRequestSchema } from "../../gen/google/rpc/error_details_pb.js";

/** Addresses of a service. */
export interface Endpoints {
	/** `http://host:port` of the HTTP listener. */
	readonly http: string;
	/** `host:port` of the gRPC listener. */
	readonly grpc: string;
}

/** Path of the webhook without a base path (specification, "Conversation update callback"). */
export const WEBHOOK = "/api/v1/webhooks/conversations";

/** Path of the event webhook without a base path and the conversation's id. */
export const EVENT_WEBHOOK = "/api/v1/webhooks/events";

/** Posts a body to the webhook or another path. `fields` overrides the default headers; null removes one. */
export function postWebhook(
	service: Endpoints,
	key: string,
	body: string | Uint8Array,
	fields: Readonly<Record<string, string | null>> = {},
	path = WEBHOOK,
): Promise<Response> {
	const headers = new Headers({ "Content-Type": "application/json", "X-Access-Token": key });
	for (const [name, value] of Object.entries(fields)) {
		if (value === null) headers.delete(name);
		else headers.set(name, value);
	}
	// For a string, fetch would add its own content type.
	const bytes = Buffer.from(body);
	return fetch(`${service.http}${path}`, { method: "POST", headers, body: bytes });
}

/** A grpc-js client for the methods of generated services. */
export class GrpcClient {
	readonly #client: Client;
	readonly #metadata = new Metadata();

	constructor(service: Endpoints, key: string | undefined) {
		// By default, clients of the same address share their connections.
		this.#client = new Client(service.grpc, credentials.createInsecure(), { "grpc.use_local_subchannel_pool": 1 });
		if (key !== undefined) this.#metadata.set("x-access-token", key);
	}

	/**
	 * Calls a unary method.
	 *
	 * @throws GrpcFailure with the status that the server sent
	 */
	call<I extends DescMessage, O extends DescMessage>(
		method: DescMethodUnary<I, O>,
		request: MessageShape<I>,
	): Promise<MessageShape<O>> {
		return new Promise((resolve, reject) => {
			this.#client.makeUnaryRequest(
				rpcPath(method),
				(message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
				(bytes: Buffer) => fromBinary(method.output, bytes),
				request,
				this.#metadata,
				(error, response) => {
					if (error !== null) reject(new GrpcFailure(error));
					else if (response === undefined) reject(new Error("the call ended without a response"));
					else resolve(response);
				},
			);
		});
	}

	/** Calls a server-streaming method over this client's own connection. */
	stream<I extends DescMessage, O extends DescMessage>(
		method: DescMethodServerStreaming<I, O>,
		request: MessageShape<I>,
	): ClientReadableStream<MessageShape<O>> {
		return this.#client.makeServerStreamRequest(
			rpcPath(method),
			(message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
			(bytes: Buffer) => fromBinary(method.output, bytes),
			request,
			this.#metadata,
		);
	}

	[Symbol.dispose](): void {
		this.#client.close();
	}
}

/** A status other than OK. */
export class GrpcFailure extends Error {
	override readonly name = "GrpcFailure";
	readonly code: number;
	/** The `google.rpc.BadRequest` detail, if there is one. */
	readonly badRequest: BadRequest | undefined;

	constructor(error: GrpcError) {
		super(error.details);
		this.code = error.code;
		const [details] = error.metadata.get("grpc-status-details-bin");
		this.badRequest = Buffer.isBuffer(details) ? badRequestOf(error.code, details) : undefined;
	}
}

function badRequestOf(code: number, details: Buffer): BadRequest | undefined {
	const trailer = new Headers({
		"grpc-status": String(code),
		"grpc-status-details-bin": details.toString("base64").replace(/=+$/, ""),
	});
	return findTrailerError(trailer)?.findDetails(BadRequestSchema)[0];
}

/** Returns the `google.rpc.BadRequest` detail of a Connect client's error. */
export function badRequest(error: ConnectError): BadRequest | undefined {
	return error.findDetails(BadRequestSchema)[0];
}

/** Protocols of the Connect clients. */
export type Protocol = "connect" | "connect over JSON" | "gRPC-Web" | "gRPC";

/** All protocols. */
export const PROTOCOLS: readonly Protocol[] = ["connect", "connect over JSON", "gRPC-Web", "gRPC"];

/** Returns a function that returns a client of a service. */
function clientFor<Desc extends DescService>(desc: Desc) {
	return (service: Endpoints, protocol: Protocol, key: string | undefined) => clientOf(desc, service, protocol, key);
}

export const ingestClient = clientFor(ConversationIngestService);
export const readClient = clientFor(ConversationService);
export const eventIngestClient = clientFor(ConversationEventIngestService);
export const eventClient = clientFor(ConversationEventService);
export const accessKeyClient = clientFor(AccessKeyService);
export const searchClient = clientFor(ConversationSearchService);
export const ownerClient = clientFor(ConversationOwnerService);
export const reportClient = clientFor(ConversationReportService);
export const refusedPostClient = clientFor(RefusedPostService);

/** Returns a client of a service. */
export function clientOf<Desc extends DescService>(
	desc: Desc,
	service: Endpoints,
	protocol: Protocol,
	key: string | undefined,
): ConnectClient<Desc> {
	const authenticate: Interceptor = (next) => (request) => {
		if (key !== undefined) request.header.set("X-Access-Token", key);
		return next(request);
	};
	const baseUrl = protocol === "gRPC" ? `http://${service.grpc}` : service.http;
	return createClient(desc, transport(protocol, { baseUrl, interceptors: [authenticate] }));
}

/** Returns the path of an RPC (gRPC over HTTP/2, "Requests"). */
export function rpcPath(method: DescMethod): string {
	return `/${method.parent.typeName}/${method.name}`;
}

/** Returns the response text of `GET /api/v1/conversations/{id}`. `search` is the query without the question mark. */
export async function getText(
	service: Endpoints,
	key: string,
	id: JsonValue | undefined,
	search = "",
): Promise<string> {
	const headers = { "X-Access-Token": key };
	const response = await fetch(`${service.http}/api/v1/conversations/${id}?${search}`, { headers });
	const text = await response.text();
	if (response.status !== 200) throw new Error(`GET ${id} was answered with ${response.status} ${text}`);
	return text;
}

function transport(protocol: Protocol, options: { readonly baseUrl: string; readonly interceptors: Interceptor[] }) {
	switch (protocol) {
		case "connect":
			return createConnectTransport({ ...options, httpVersion: "1.1" });
		case "connect over JSON":
			return createConnectTransport({ ...options, httpVersion: "1.1", useBinaryFormat: false });
		case "gRPC-Web":
			return createGrpcWebTransport({ ...options, httpVersion: "1.1" });
		case "gRPC":
			return createGrpcTransport(options);
	}
}
