import {
	create,
	type DescMessage,
	type DescMethodServerStreaming,
	type DescMethodUnary,
	fromBinary,
	type Message,
	type MessageInitShape,
	type MessageShape,
	toBinary,
} from "@bufbuild/protobuf";
import type { Principal } from "../access/keys.ts";
import type { CallSignal } from "../conversations/ingest/call-signal.ts";
import type { WatchBatch } from "../conversations/watch/watch.ts";
import { ServiceError, withConversation } from "../errors.ts";

/** A method of a service, as a transport mounts it: it takes an encoded request and says who sent it. */
export type RpcMethod = UnaryRpc | StreamRpc;

/** A method that gives one response. */
export interface UnaryRpc {
	readonly kind: "unary";
	readonly method: DescMethodUnary;
	/** Gives the response as a message. */
	readonly answer: Answer<Promise<Message>>;
	/** Gives the encoded response. */
	readonly answerEncoded: Answer<Promise<Uint8Array>>;
}

/** A method that gives a stream of responses. */
export interface StreamRpc {
	readonly kind: "server_streaming";
	readonly method: DescMethodServerStreaming;
	/** Gives the responses in batches that are sent together, until the signal fires. Throws as {@link Answer} does. */
	readonly stream: StreamHandler<Uint8Array, DescMessage>;
}

/**
 * Answers an encoded request.
 *
 * @param signal asked before anything is stored
 * @throws ServiceError `invalid_argument` for bytes that are not a request of the method, and what the handler throws
 */
type Answer<Outcome> = (request: Uint8Array, caller: Principal, signal: CallSignal) => Outcome;

/** What a unary method does, without regard to transports. */
type Handler<Request, Outcome> = (request: Request, caller: Principal) => Outcome;

/** What a streaming method does; the signal fires when nobody waits for responses any longer. */
type StreamHandler<Request, Response extends DescMessage> = (
	request: Request,
	caller: Principal,
	signal: AbortSignal,
) => AsyncIterable<WatchBatch<Response>>;

/** Optional parts of a method's definition. */
interface MethodOptions<Request> {
	/** Id of the conversation that a request is about, or an empty text: for the log. */
	readonly conversationId?: (request: Request) => string;
}

/**
 * Defines a unary method.
 *
 * @param options.encoded gives the encoded response, for methods that can do so with less work than by encoding the
 *   message that `handler` gives
 */
export function unary<I extends DescMessage, O extends DescMessage>(
	method: DescMethodUnary<I, O>,
	handler: Handler<MessageShape<I>, Promise<MessageInitShape<O>>>,
	options: MethodOptions<MessageShape<I>> & { encoded?: Handler<MessageShape<I>, Promise<Uint8Array>> } = {},
): UnaryRpc {
	const { encoded, conversationId } = options;
	const decoded = <Outcome>(handle: Handler<MessageShape<I>, Promise<Outcome>>): Answer<Promise<Outcome>> => {
		return async (bytes, caller) => {
			const request = decodeRequest(method.input, bytes);
			try {
				return await handle(request, caller);
			} catch (error) {
				throw withConversation(error, conversationId?.(request));
			}
		};
	};
	const answer = async (request: MessageShape<I>, caller: Principal): Promise<MessageShape<O>> =>
		create(method.output, await handler(request, caller));
	return {
		kind: "unary",
		method,
		answer: decoded(answer),
		answerEncoded: decoded(encoded ?? (async (...call) => toBinary(method.output, await answer(...call)))),
	};
}

/**
 * Defines a unary method that takes its request as the bytes that arrived, because another thread decodes them.
 *
 * @param field of the request, in which the handler finds violations
 */
export function unaryUndecoded<I extends DescMessage, O extends DescMessage>(
	method: DescMethodUnary<I, O>,
	field: keyof MessageShape<I> & string,
	handler: Answer<Promise<MessageInitShape<O>>>,
): UnaryRpc {
	const answer: Answer<Promise<MessageShape<O>>> = async (...call) => {
		try {
			return create(method.output, await handler(...call));
		} catch (error) {
			throw error instanceof ServiceError ? error.with({ field }) : error;
		}
	};
	return {
		kind: "unary",
		method,
		answer,
		answerEncoded: async (...call) => toBinary(method.output, await answer(...call)),
	};
}

/** Defines a server-streaming method. */
export function serverStream<I extends DescMessage, O extends DescMessage>(
	method: DescMethodServerStreaming<I, O>,
	handler: StreamHandler<MessageShape<I>, O>,
	{ conversationId }: MethodOptions<MessageShape<I>> = {},
): StreamRpc {
	return {
		kind: "server_streaming",
		method,
		stream: async function* (bytes, caller, signal) {
			const request = decodeRequest(method.input, bytes);
			try {
				yield* handler(request, caller, signal);
			} catch (error) {
				throw withConversation(error, conversationId?.(request));
			}
		},
	};
}

/**
 * The answer, on every transport, to a request that is no message of the method. It quotes nothing of the request.
 *
 * @param field path of the field whose value is not valid, if it is known
 */
export function unreadableRequest(input: DescMessage, cause?: unknown, field?: string): ServiceError {
	const reason = field === undefined ? "" : `: the value of "${field}" is not valid`;
	return new ServiceError("invalid_argument", `The request cannot be read as a ${input.typeName}${reason}`, { cause });
}

function decodeRequest<I extends DescMessage>(input: I, bytes: Uint8Array): MessageShape<I> {
	try {
		return fromBinary(input, bytes);
	} catch (cause) {
		throw unreadableRequest(input, cause);
	}
}
