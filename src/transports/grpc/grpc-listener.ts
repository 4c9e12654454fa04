import { promisify } from "node:util";
import { type DescFile, type DescService, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import {
	logVerbosity,
	type MethodDefinition,
	Server,
	ServerCredentials,
	type ServerUnaryCall,
	type ServerWritableStream,
	type sendUnaryData,
	setLogVerbosity,
} from "@grpc/grpc-js";
import type { EnumTypeDefinition } from "@grpc/proto-loader";
import { ReflectionService } from "@grpc/reflection";
import { HealthImplementation } from "grpc-health-check";
import { file_google_rpc_error_details } from "../../../gen/google/rpc/error_details_pb.js";
import { file_grpc_health_v1_health } from "../../../gen/grpc/health/v1/health_pb.js";
import { rpcPath } from "../../access/gate.ts";
import type { CallSignal } from "../../errors.ts";
import { bufferOf } from "../../memory.ts";
import type { RpcMethod, StreamRpc, UnaryRpc } from "../../rpc/rpc-method.ts";
import type { Requests } from "../../telemetry/requests.ts";
import { acceptConnections, type ConnectionOptions, LIMITS, type RunningListener } from "../connections.ts";
import { type HeldBatches, type RpcTransportOptions, untilTaken } from "../stream-messages.ts";
import { admittedCall, GrpcCall, GrpcStreams, grpcStatus, MessageBatch } from "./grpc-call.ts";

interface GrpcOptions extends RpcTransportOptions, Omit<ConnectionOptions, "listener" | "protocols" | "serve"> {
	/** The services of `methods`. */
	readonly services: readonly DescService[];
	readonly requests: Requests;
}

interface GrpcListener extends RunningListener {
	/** Sets the status that the health service reports for each service and for the server as a whole. */
	setServing(serving: boolean): void;
}

/**
 * Listens for gRPC: the services, `grpc.health.v1.Health` and server reflection.
 *
 * @throws Error as {@link acceptConnections}
 */
export async function listenGrpc(options: GrpcOptions): Promise<GrpcListener> {
	const { services, methods, held, maxBodyBytes, stopping, limits = LIMITS } = options;
	const context = {
		...options,
		limits,
		isStream: new Map(methods.map(({ kind, method }) => [rpcPath(method), kind === "server_streaming"])),
	};
	const streams = new GrpcStreams(context);
	// Without this, grpc-js writes to standard error in its own format. Failures reach the callers as errors anyway.
	setLogVerbosity(logVerbosity.NONE);
	const server = new Server({
		"grpc.max_receive_message_length": maxBodyBytes,
		// channelz counts calls for a service that is not offered here.
		"grpc.enable_channelz": 0,
		// Detects clients that have vanished, so that their streams end.
		"grpc.keepalive_time_ms": 60_000,
		"grpc.max_connection_idle_ms": 300_000,
		"grpc.max_concurrent_streams": limits.grpcStreams,
		interceptors: [({ path }, next) => new GrpcCall(next, path, streams.current(), context)],
	});
	for (const rpc of methods) {
		const name = rpc.method.localName;
		const handler = rpc.kind === "unary" ? unaryHandler(rpc) : streamHandler(rpc, held, stopping);
		server.addService({ [name]: definitionOf(rpc) }, { [name]: handler });
	}
	const health = new HealthImplementation();
	const setServing = (serving: boolean): void => {
		const status = serving ? "SERVING" : "NOT_SERVING";
		for (const service of ["", ...services.map(({ typeName }) => typeName)]) health.setStatus(service, status);
	};
	setServing(true);
	health.addToServer(server);
	const described = [...services.map(({ file }) => file), file_google_rpc_error_details, file_grpc_health_v1_health];
	new ReflectionService(packageDefinition(described)).addToServer(server);

	// The service accepts the sockets itself, because grpc-js neither limits their number nor closes silent ones.
	const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
	const { address, count, stopAccepting, waitForEnd, kill } = await acceptConnections({
		...options,
		listener: "grpc",
		protocols: ["h2"],
		serve: (socket) => injector.injectConnection(socket),
	});
	streams.follow(address.port);
	return {
		address,
		setServing,
		connections: count,
		stop: async (stall, until) => {
			stopAccepting();
			await Promise.all([promisify(server.tryShutdown.bind(server))(), waitForEnd(stall, until)]);
			streams[Symbol.dispose]();
		},
		kill: () => {
			kill();
			streams[Symbol.dispose]();
		},
	};
}

/** Returns files with all their imports in the form that the reflection service takes. */
function packageDefinition(roots: readonly DescFile[]) {
	const files = new Set<DescFile>();
	const add = (file: DescFile): void => {
		for (const dependency of file.dependencies) add(dependency);
		files.add(file);
	};
	for (const root of roots) add(root);
	const fileDescriptorProtos = [...files].map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto)));
	// The reflection service takes a package definition of proto-loader, and reads only the file descriptors in it.
	const format: EnumTypeDefinition["format"] = "Protocol Buffer 3 EnumDescriptorProto";
	return { services: { format, type: {}, fileDescriptorProtos } };
}

/** Requests and responses pass through grpc-js as encoded bytes. */
function definitionOf({ kind, method }: RpcMethod): MethodDefinition<Uint8Array, Uint8Array> {
	return {
		path: rpcPath(method),
		requestStream: false,
		responseStream: kind === "server_streaming",
		requestSerialize: bufferOf,
		requestDeserialize: (bytes) => bytes,
		responseSerialize: bufferOf,
		responseDeserialize: (bytes) => bytes,
	};
}

function unaryHandler({ handle }: UnaryRpc) {
	return (call: ServerUnaryCall<Uint8Array, Uint8Array>, callback: sendUnaryData<Uint8Array>): void => {
		const signal = new UnaryCallSignal(call);
		const answer = async () => {
			const { caller, permit, observed } = admittedCall(call.metadata);
			const release = permit.hold();
			try {
				const response = await observed.run(() => handle(call.request, caller, signal));
				permit.reserveResponse(response.byteLength);
				return response;
			} finally {
				release();
			}
		};
		answer().then(
			(response) => callback(null, response),
			(error: unknown) => {
				// A cancelled call did not fail: nobody waits for its response.
				if (!call.cancelled) admittedCall(call.metadata).observed.failed(error);
				callback(grpcStatus(error));
			},
		);
	};
}

/**
 * Signal that is aborted when a call is cancelled or its deadline has passed. It costs less than an AbortController for each
 * call, and as a class less than an object literal with accessors, which V8 keeps until a collection of the whole heap.
 */
class UnaryCallSignal implements CallSignal {
	readonly #call: ServerUnaryCall<Uint8Array, Uint8Array>;

	constructor(call: ServerUnaryCall<Uint8Array, Uint8Array>) {
		this.#call = call;
	}

	get aborted(): boolean {
		return this.#call.cancelled;
	}

	get deadline(): number | undefined {
		const deadline = Number(this.#call.getDeadline());
		return Number.isFinite(deadline) ? deadline : undefined;
	}
}

function streamHandler({ stream }: StreamRpc, held: HeldBatches, stopping: AbortSignal) {
	return (call: ServerWritableStream<Uint8Array, Uint8Array | MessageBatch>): void => {
		const cancelled = new AbortController();
		call.on("cancelled", () => cancelled.abort());
		const over = AbortSignal.any([cancelled.signal, stopping]);
		const send = async (): Promise<void> => {
			for await (const batch of stream(call.request, admittedCall(call.metadata).caller, over)) {
				const { chunks, release } = held.hold(batch, "bytes");
				const message = new MessageBatch(chunks);
				await untilTaken(over, (onTaken) => call.write(message, onTaken)).finally(release);
			}
		};
		send().then(
			() => call.end(),
			(error: unknown) => {
				// A stream that its client cancelled, or that the service stopped, did not fail.
				if (!over.aborted) admittedCall(call.metadata).observed.failed(error);
				// grpc-js sends the status that an error event of the stream carries.
				if (!call.cancelled) call.emit("error", grpcStatus(error));
			},
		);
	};
}
