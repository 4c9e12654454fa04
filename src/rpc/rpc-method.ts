import {
	create,
	type DescMessage,
	type DescMethod,
	type DescMethodServerStreaming,
	type DescMethodUnary,
	fromBinary,
	isMessage,
	type Message,
	type MessageInitShape,
	type MessageShape,
	toBinary,
} from "@bufbuild/protobuf";
import { Code, ConnectError, createRouterTransport, type Transport } from "@connectrpc/connect";
import { BadRequestSchema } from "../../gen/google/rpc/error_details_pb.js";
import type { Principal } from "../access/keys.ts";
import { encodeMessage } from "../conversations/read/records.ts";
import type { WatchBatch } from "../conversations/watch/watch.ts";
import { type CallSignal, formatPath, ServiceError, withConversation } from "../errors.ts";

/** A method of a service, as transports mount it. It takes an encoded request and its caller. */
export type RpcMethod = UnaryRpc | StreamRpc;

export interface UnaryRpc {
	readonly kind: "unary";
	readonly method: DescMethodUnary;
	readonly handle: Handler<Uint8Array, Uint8Array>;
	/** Takes the request, and returns the response, as messages. Undefined for a method whose request another thread decodes. */
	readonly answer: Handler<Message, Message> | undefined;
}

export interface StreamRpc {
	readonly kind: "server_streaming";
	readonly method: DescMethodServerStreaming;
	/** Returns the responses in batches that are sent together, until the signal fires. Throws as Handler does. */
	readonly stream: StreamHandler<Uint8Array, DescMessage>;
}

/**
 * Handles a request of a unary method, independent of transports. The signal fires when nobody waits for the response; it
 * is checked before anything is stored.
 *
 * @throws ServiceError `invalid_argument` for bytes that are not a request of the method, and others of the method
 */
type Handler<Request, Response> = (request: Request, caller: Principal, signal: CallSignal) => Promise<Response>;

/** Implementation of a streaming method. The signal fires when nobody waits for responses any longer. */
type StreamHandler<Request, Response extends DescMessage> = (
	request: Request,
	caller: Principal,
	signal: AbortSignal,
) => AsyncIterable<WatchBatch<Response>>;

/** Called before the handler of a method, such as to write down what is read. */
type Before = (request: Message, caller: Principal) => Promise<void>;

/** Returns an error of a method with the conversation that the request is about, for the log. */
function errorAbout({ name }: DescMethod, request: Message, error: unknown): unknown {
	const { conversationId, id }: Readonly<Record<string, unknown>> = { ...request };
	// GetConversation and DeleteConversation; an id is that of another thing elsewhere.
	const about = conversationId ?? (name.endsWith("Conversation") ? id : undefined);
	return withConversation(error, typeof about === "string" ? about : undefined);
}

/** Defines a unary method. `before` is called before the handler. */
export function unary<I extends DescMessage, O extends DescMessage>(
	method: DescMethodUnary<I, O>,
	handler: Handler<MessageShape<I>, MessageInitShape<O>>,
	before?: Before,
): UnaryRpc {
	const respond: Handler<MessageShape<I>, MessageShape<O>> = async (request, caller, signal) => {
		try {
			await before?.(request, caller);
			return create(method.output, await handler(request, caller, signal));
		} catch (error) {
			throw errorAbout(method, request, error);
		}
	};
	return {
		kind: "unary",
		method,
		handle: async (bytes, ...call) =>
			encodeMessage(method.output, await respond(decodeRequest(method.input, bytes), ...call)),
		answer: async (request, ...call) => {
			if (!isMessage(request, method.input)) throw unreadableRequest(method.input);
			return await respond(request, ...call);
		},
	};
}

/**
 * Defines a unary method whose handler takes the encoded request, because another thread decodes it.
 *
 * @param field field of the request from which the paths of the violations in the handler's errors lead
 */
export function unaryUndecoded<I extends DescMessage, O extends DescMessage>(
	method: DescMethodUnary<I, O>,
	field: keyof MessageShape<I> & string,
	handler: Handler<Uint8Array, MessageInitShape<O>>,
): UnaryRpc {
	const handle: UnaryRpc["handle"] = async (...call) => {
		try {
			return toBinary(method.output, create(method.output, await handler(...call)));
		} catch (error) {
			throw error instanceof ServiceError ? error.with({ field }) : error;
		}
	};
	return { kind: "unary", method, handle, answer: undefined };
}

/** Defines a server-streaming method. */
export function serverStream<I extends DescMessage, O extends DescMessage>(
	method: DescMethodServerStreaming<I, O>,
	handler: StreamHandler<MessageShape<I>, O>,
	before?: Before,
): StreamRpc {
	return {
		kind: "server_streaming",
		method,
		stream: async function* (bytes, caller, signal) {
			const request = decodeRequest(method.input, bytes);
			try {
				await before?.(request, caller);
				yield* watchUntilEnded(caller, signal, (over) => handler(request, caller, over));
			} catch (error) {
				throw errorAbout(method, request, error);
			}
		},
	};
}

/**
 * Follows a watch until the signal fires or the caller's access key ends.
 *
 * @param watch begins the watch, which ends when the signal that it gets fires
 * @throws ServiceError `unauthenticated` when the key has ended, and what the watch throws
 */
async function* watchUntilEnded<Batch>(
	{ ended }: Principal,
	signal: AbortSignal,
	watch: (over: AbortSignal) => AsyncIterable<Batch>,
): AsyncGenerator<Batch, void, undefined> {
	yield* watch(AbortSignal.any(ended === undefined ? [signal] : [signal, ended]));
	if (ended?.aborted === true && !signal.aborted)
		throw new ServiceError("unauthenticated", "The access key was revoked or has expired");
}

/**
 * Returns the error for bytes that are no request of the method. It quotes nothing of them. All transports use it.
 *
 * @param place full name of the field or message that is not valid, if it is known
 */
export function unreadableRequest(input: DescMessage, cause?: unknown, place?: string): ServiceError {
	const reason = place === undefined ? "" : `: ${place} is not valid`;
	return new ServiceError("invalid_argument", `The request cannot be read as a ${input.typeName}${reason}`, { cause });
}

function decodeRequest<I extends DescMessage>(input: I, bytes: Uint8Array): MessageShape<I> {
	try {
		return fromBinary(input, bytes);
	} catch (cause) {
		throw unreadableRequest(input, cause);
	}
}

/** Returns a transport that calls unary methods in this process, for a caller. */
export function inProcessTransport(methods: readonly RpcMethod[], caller: Principal): Transport {
	return createRouterTransport((router) => {
		for (const rpc of methods) {
			if (rpc.kind !== "unary") continue;
			const { method, handle } = rpc;
			router.rpc(method, async (request, { signal }) => {
				try {
					return fromBinary(method.output, await handle(toBinary(method.input, request), caller, signal));
				} catch (error) {
					throw toConnectError(error);
				}
			});
		}
	});
}

/** Returns the error that RPC clients receive. Of an unexpected error they learn only that it happened. */
export function toConnectError(error: unknown): ConnectError {
	if (error instanceof ConnectError) return error;
	if (!(error instanceof ServiceError)) return new ConnectError("internal error", Code.Internal);
	const connectError = new ConnectError(error.message, error.answer.rpc);
	const { retryAfter } = error.answer;
	if (retryAfter !== undefined) connectError.metadata.set("Retry-After", String(retryAfter));
	if (error.violations.length > 0)
		connectError.details = [
			{
				desc: BadRequestSchema,
				value: create(BadRequestSchema, { fieldViolations: fieldViolations(error) }),
			},
		];
	return connectError;
}

/** Maximum bytes of violations in one response. They are sent in trailers, of which clients accept 8 KiB by default. */
const MAX_DETAIL_BYTES = 4096;

function fieldViolations({ violations, field: root }: ServiceError) {
	const listed = [];
	let bytes = 0;
	for (const { path, message, type } of violations) {
		const field = `${root ?? ""}${formatPath(path)}`;
		bytes += field.length + message.length + type.length;
		if (listed.length > 0 && bytes > MAX_DETAIL_BYTES) break;
		listed.push({ field, description: message, reason: type });
	}
	return listed;
}
