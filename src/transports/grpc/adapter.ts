import { create, type DescMethod, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import {
	type ConnectError,
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
import { toConnectError } from "../../rpc/errors.ts";
import { PRINCIPAL } from "../../rpc/method.ts";
import type { ServiceRegistrar } from "../../rpc/services.ts";

type Definition = MethodDefinition<Message, Message>;

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
		requestSerialize: (message) => Buffer.from(toBinary(method.input, message)),
		requestDeserialize: (bytes) => fromBinary(method.input, bytes),
		responseSerialize: (message) => asBuffer(toBinary(method.output, message)),
		responseDeserialize: (bytes) => fromBinary(method.output, bytes),
	};
}

function asBuffer(bytes: Uint8Array): Buffer {
	return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function handle(spec: MethodImplSpec, principalOf: PrincipalOf, stopping: AbortSignal) {
	switch (spec.kind) {
		case "unary":
			return (call: ServerUnaryCall<Message, Message>, callback: sendUnaryData<Message>): void => {
				const context = contextOf(spec.method, call.metadata, principalOf, undefined);
				Promise.resolve(spec.impl(call.request, context)).then(
					(response) => callback(null, create(spec.method.output, response)),
					(error: unknown) => callback(statusOf(toConnectError(error))),
				);
			};
		case "server_streaming":
			return (call: ServerWritableStream<Message, Message>): void => {
				const cancelled = new AbortController();
				call.on("cancelled", () => cancelled.abort());
				const context = contextOf(
					spec.method,
					call.metadata,
					principalOf,
					AbortSignal.any([cancelled.signal, stopping]),
				);
				send(call, spec, context).then(
					() => call.end(),
					(error: unknown) => {
						// grpc-js sends the status of an error that the stream emits.
						if (!cancelled.signal.aborted) call.emit("error", statusOf(toConnectError(error)));
					},
				);
			};
		default:
			throw new Error(`${spec.method.name}: the services have no methods that clients stream to`);
	}
}

/** Sends a stream at the pace at which the client takes it. */
async function send(
	call: ServerWritableStream<Message, Message>,
	spec: Extract<MethodImplSpec, { kind: "server_streaming" }>,
	context: HandlerContext,
): Promise<void> {
	for await (const response of spec.impl(call.request, context)) {
		if (call.cancelled) return;
		if (!call.write(create(spec.method.output, response))) await drained(call, context.signal);
	}
}

function drained(call: ServerWritableStream<Message, Message>, signal: AbortSignal): Promise<void> {
	return new Promise((resolve) => {
		const done = (): void => {
			call.off("drain", done);
			signal.removeEventListener("abort", done);
			resolve();
		};
		call.on("drain", done);
		signal.addEventListener("abort", done);
		if (signal.aborted) done();
	});
}

function contextOf(
	method: DescMethod,
	metadata: Metadata,
	principalOf: PrincipalOf,
	signal: AbortSignal | undefined,
): HandlerContext {
	return createHandlerContext({
		service: method.parent,
		method,
		protocolName: "grpc",
		requestMethod: "POST",
		url: rpcPath(method),
		...(signal === undefined ? {} : { requestSignal: signal }),
		contextValues: createContextValues().set(PRINCIPAL, principalOf(metadata)),
	});
}

/** The error as grpc-js sends it: code, message, and the details in `grpc-status-details-bin`. */
export function statusOf(error: ConnectError) {
	const trailer = setTrailerStatus(new Headers(), error);
	const metadata = new Metadata();
	const details = trailer.get("grpc-status-details-bin");
	if (details !== null) metadata.set("grpc-status-details-bin", Buffer.from(details, "base64"));
	return { name: error.name, message: error.rawMessage, code: Number(error.code), details: error.rawMessage, metadata };
}
