import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError, type ContextValues, createContextKey, type HandlerContext } from "@connectrpc/connect";
import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { Principal } from "../access/keys.ts";
import { ServiceError } from "../errors.ts";
import type { Log } from "../telemetry/log.ts";
import { toConnectError } from "./errors.ts";

/** Where a transport puts the principal that the gate has admitted. */
export const PRINCIPAL = createContextKey<Principal | undefined>(undefined, { description: "principal" });

/** Whom a call comes from. No call reaches a method without the gate. */
export function principalOf(context: HandlerContext): Principal {
	const principal = context.values.get(PRINCIPAL);
	if (principal === undefined) throw new ConnectError("the gate has not admitted the call", Code.Unauthenticated);
	return principal;
}

const encodedRequests = new WeakMap<object, Uint8Array>();
const encodedResponses = new WeakMap<object, readonly Uint8Array[]>();
/** Whether a transport sends what {@link encodedResponse} gives. */
const ENCODED_RESPONSES = createContextKey(false, { description: "encoded responses" });

/**
 * Whether a method takes its request as it came, because another thread decodes it. A transport that can, leaves such
 * a request undecoded: it hands over an empty message, after {@link keepEncodedRequest}.
 */
export function takesEncoded(method: DescMethod): boolean {
	return method.input.typeName === IngestConversationRequestSchema.typeName;
}

/** Keeps the bytes that an empty request stands for. */
export function keepEncodedRequest(request: object, bytes: Uint8Array): void {
	encodedRequests.set(request, bytes);
}

/** The bytes of a request that was left undecoded; undefined for one that was decoded. */
export function encodedRequest(request: object): Uint8Array | undefined {
	return encodedRequests.get(request);
}

/** Whether a method may answer with a message that is encoded already. */
export function takesEncodedResponses(context: HandlerContext): boolean {
	return context.values.get(ENCODED_RESPONSES);
}

/** Says to methods that the transport sends the {@link encodedResponse}. */
export function allowEncodedResponses(values: ContextValues): ContextValues {
	return values.set(ENCODED_RESPONSES, true);
}

/** Keeps the bytes that an empty response stands for, in parts that follow each other. */
export function keepEncodedResponse(response: object, parts: readonly Uint8Array[]): void {
	encodedResponses.set(response, parts);
}

/** The bytes of a response that is encoded already; undefined for one that is not. */
export function encodedResponse(response: object): readonly Uint8Array[] | undefined {
	return encodedResponses.get(response);
}

/** Makes a unary method whose errors reach clients as {@link toConnectError} maps them. */
export function unary<Request, Response>(
	log: Log,
	answer: (request: Request, context: HandlerContext) => Promise<Response>,
): (request: Request, context: HandlerContext) => Promise<Response> {
	return async (request, context) => {
		try {
			return await answer(request, context);
		} catch (error) {
			throw reported(log, context, error);
		}
	};
}

/**
 * Responses of a server-streaming method. A transport may take them one by one, or as the batches in which they are
 * made: a batch can be shared by many streams, and is then the same array of the same messages for all of them.
 */
export class BatchedResponses<Response> implements AsyncIterable<Response> {
	readonly batches: AsyncIterable<readonly Response[]>;

	constructor(batches: AsyncIterable<readonly Response[]>) {
		this.batches = batches;
	}

	async *[Symbol.asyncIterator](): AsyncGenerator<Response, void, undefined> {
		for await (const batch of this.batches) yield* batch;
	}
}

/** Makes a server-streaming method whose errors reach clients as {@link toConnectError} maps them. */
export function serverStream<Request, Response>(
	log: Log,
	answer: (request: Request, context: HandlerContext) => AsyncIterable<readonly Response[]>,
): (request: Request, context: HandlerContext) => BatchedResponses<Response> {
	async function* batches(request: Request, context: HandlerContext) {
		try {
			yield* answer(request, context);
		} catch (error) {
			// A stream that was ended from outside is no refusal: the log would have a line for each watcher at every stop.
			throw context.signal.aborted ? toConnectError(error) : reported(log, context, error);
		}
	}
	return (request, context) => new BatchedResponses(batches(request, context));
}

function reported(log: Log, context: HandlerContext, error: unknown): ConnectError {
	const transport = context.protocolName === "grpc" ? "grpc" : "connect";
	if (error instanceof ServiceError) log.requestRefused(transport, error);
	else if (!(error instanceof ConnectError)) log.unexpectedError(transport, error);
	return toConnectError(error);
}
