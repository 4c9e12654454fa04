import {
	create,
	type DescMessage,
	type DescMethod,
	type DescService,
	fromBinary,
	type Message,
	type MessageInitShape,
	toBinary,
} from "@bufbuild/protobuf";
import {
	type ConnectError,
	type ContextValues,
	createContextValues,
	createHandlerContext,
	createServiceImplSpec,
	type HandlerContext,
	type MethodImplSpec,
} from "@connectrpc/connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import {
	Metadata,
	type MethodDefinition,
	type Server,
	type ServerUnaryCall,
	type ServerWritableStream,
	type ServiceDefinition,
	type sendUnaryData,
	type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { rpcPath } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import { ServiceError } from "../../errors.ts";
import { toConnectError } from "../../rpc/errors.ts";
import {
	allowEncodedResponses,
	BatchedResponses,
	encodedResponse,
	keepEncodedRequest,
	PRINCIPAL,
	takesEncoded,
} from "../../rpc/method.ts";
import type { ServiceRegistrar } from "../../rpc/services.ts";
import { lengthPrefixed, ResponseBatch } from "./batch.ts";

/** Requests are decoded by the handlers: what fails there gets a status of ours. */
type Definition = MethodDefinition<Uint8Array, Message>;
type MessageInit = MessageInitShape<DescMessage>;

/** Finds out whom the gate has admitted with a call's metadata. */
export type PrincipalOf = (metadata: Metadata) => Principal | undefined;

/**
 * Mounts implementations of Connect services on a grpc-js server, so that both stacks run the same code.
 *
 * @param stopping ends streams when it fires
 */
export function grpcRegistrar(server: Server, principalOf: PrincipalOf, stopping: AbortSignal): ServiceRegistrar {
	return {
		service(service, implementation) {
			const methods = Object.entries(createServiceImplSpec(service, implementation).methods);
			const definition: ServiceDefinition = Object.fromEntries(
				methods.map(([name, spec]) => [name, define(spec.method)]),
			);
			const handlers: UntypedServiceImplementation = {};
			for (const [name, spec] of methods) handlers[name] = handle(spec, principalOf, stopping);
			server.addService(definition, handlers);
		},
	};
}

function define(method: DescMethod): Definition {
	return {
		path: rpcPath(method),
		requestStream: method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming",
		responseStream: method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming",
		requestSerialize: asBuffer,
		requestDeserialize: (bytes) => bytes,
		responseSerialize: (message) => asBuffer(encode(method, message)),
		responseDeserialize: (bytes) => fromBinary(method.output, bytes),
	};
}

function asBuffer(bytes: Uint8Array): Buffer {
	return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** @throws ServiceError `invalid_argument` for bytes that are no message of the method's, or nest too deep to be read */
function decodeRequest(method: DescMethod, bytes: Uint8Array): Message {
	if (takesEncoded(method)) {
		const request = create(method.input);
		keepEncodedRequest(request, bytes);
		return request;
	}
	try {
		return fromBinary(method.input, bytes);
	} catch (cause) {
		throw new ServiceError("invalid_argument", `The request cannot be read as a ${method.input.typeName}`, { cause });
	}
}

function handle(spec: MethodImplSpec, principalOf: PrincipalOf, stopping: AbortSignal) {
	switch (spec.kind) {
		case "unary":
			return (call: ServerUnaryCall<Uint8Array, Message>, callback: sendUnaryData<Message | ResponseBatch>): void => {
				const context = new UnaryContext(spec.method, principalOf(call.metadata));
				const answer = async () => await spec.impl(decodeRequest(spec.method, call.request), context);
				answer().then(
					(response) => callback(null, outgoing(create(spec.method.output, response))),
					(error: unknown) => callback(statusOf(toConnectError(error))),
				);
			};
		case "server_streaming":
			return (call: ServerWritableStream<Uint8Array, Message | ResponseBatch>): void => {
				const cancelled = new AbortController();
				call.on("cancelled", () => cancelled.abort());
				const context = createHandlerContext({
					...callInfo(spec.method),
					requestSignal: cancelled.signal,
					shutdownSignal: stopping,
					contextValues: principalValues(principalOf(call.metadata)),
				});
				const writer = new ResponseWriter(call, spec.method, context.signal);
				const answer = async () => await writer.send(spec.impl(decodeRequest(spec.method, call.request), context));
				answer()
					.then(
						() => call.end(),
						(error: unknown) => {
							// grpc-js sends the status of an error that the stream emits.
							if (!cancelled.signal.aborted) call.emit("error", statusOf(toConnectError(error)));
						},
					)
					// Takes the stream's listeners off the signal that outlives it.
					.finally(() => context.abort());
			};
		default:
			throw new Error(`${spec.method.name}: the services have no methods that clients stream to`);
	}
}

/** A response as it goes to the call: the one that is encoded already need not be copied by grpc-js. */
function outgoing(response: Message): Message | ResponseBatch {
	const parts = encodedResponse(response);
	return parts === undefined ? response : new ResponseBatch([response], lengthPrefixed([parts]));
}

/** Sends the responses of a stream at the pace at which the client takes them: never more than one write is under way. */
class ResponseWriter {
	readonly #call: ServerWritableStream<Uint8Array, Message | ResponseBatch>;
	readonly #method: DescMethod;
	readonly #signal: AbortSignal;
	#proceed: (() => void) | undefined;

	constructor(
		call: ServerWritableStream<Uint8Array, Message | ResponseBatch>,
		method: DescMethod,
		signal: AbortSignal,
	) {
		this.#call = call;
		this.#method = method;
		this.#signal = signal;
		// A write to a client that has gone is never done.
		signal.addEventListener("abort", () => this.#proceed?.(), { once: true });
	}

	async send(responses: AsyncIterable<MessageInit>): Promise<void> {
		if (responses instanceof BatchedResponses)
			for await (const batch of responses.batches) await this.#write(encodeBatch(this.#method, batch));
		else for await (const response of responses) await this.#write(create(this.#method.output, response));
	}

	async #write(message: Message | ResponseBatch): Promise<void> {
		if (this.#signal.aborted) return;
		await new Promise<void>((resolve) => {
			this.#proceed = resolve;
			this.#call.write(message, () => resolve());
		});
	}
}

/** What batches were encoded to, for as long as somebody holds the batch. */
const encodedBatches = new WeakMap<readonly MessageInit[], ResponseBatch>();
/** What the messages of batches were encoded to: other batches may hold them too. */
const encodedMessages = new WeakMap<Message, Uint8Array>();

function encodeBatch(method: DescMethod, batch: readonly MessageInit[]): ResponseBatch {
	const known = encodedBatches.get(batch);
	if (known !== undefined) return known;
	const messages = batch.map((response) => create(method.output, response));
	const encoded = new ResponseBatch(messages, lengthPrefixed(messages.map((message) => [encodeOnce(method, message)])));
	encodedBatches.set(batch, encoded);
	return encoded;
}

function encode(method: DescMethod, message: Message): Uint8Array {
	const parts = encodedResponse(message);
	return parts === undefined ? toBinary(method.output, message) : Buffer.concat(parts);
}

function encodeOnce(method: DescMethod, message: Message): Uint8Array {
	const known = encodedMessages.get(message);
	if (known !== undefined) return known;
	const bytes = encode(method, message);
	encodedMessages.set(message, bytes);
	return bytes;
}

function callInfo(method: DescMethod) {
	return { service: method.parent, method, protocolName: "grpc", requestMethod: "POST", url: rpcPath(method) };
}

function principalValues(principal: Principal | undefined): ContextValues {
	return createContextValues().set(PRINCIPAL, principal);
}

/**
 * The context of a unary call. What methods hardly ever ask for is made when they do: `createHandlerContext` makes
 * signals and three sets of headers for each call, which took as long as everything else that this file does.
 */
class UnaryContext implements HandlerContext {
	readonly method: DescMethod;
	readonly service: DescService;
	readonly protocolName = "grpc";
	readonly requestMethod = "POST";
	readonly values: ContextValues;
	readonly timeoutMs = () => undefined;
	#signal: AbortSignal | undefined;
	#requestHeader: Headers | undefined;
	#responseHeader: Headers | undefined;
	#responseTrailer: Headers | undefined;

	constructor(method: DescMethod, principal: Principal | undefined) {
		this.method = method;
		this.service = method.parent;
		this.values = allowEncodedResponses(principalValues(principal));
	}

	get url(): string {
		return rpcPath(this.method);
	}

	get signal(): AbortSignal {
		this.#signal ??= new AbortController().signal;
		return this.#signal;
	}

	get requestHeader(): Headers {
		this.#requestHeader ??= new Headers();
		return this.#requestHeader;
	}

	get responseHeader(): Headers {
		this.#responseHeader ??= new Headers();
		return this.#responseHeader;
	}

	get responseTrailer(): Headers {
		this.#responseTrailer ??= new Headers();
		return this.#responseTrailer;
	}
}

/** The error as grpc-js sends it: code, message, and the details in `grpc-status-details-bin`. */
export function statusOf(error: ConnectError) {
	const trailer = setTrailerStatus(new Headers(), error);
	const metadata = new Metadata();
	const details = trailer.get("grpc-status-details-bin");
	if (details !== null) metadata.set("grpc-status-details-bin", Buffer.from(details, "base64"));
	return { name: error.name, message: error.rawMessage, code: Number(error.code), details: error.rawMessage, metadata };
}
