import { promisify } from "node:util";
import { type DescFile, type DescService, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { logVerbosity, Server, ServerCredentials, setLogVerbosity } from "@grpc/grpc-js";
import type { EnumTypeDefinition } from "@grpc/proto-loader";
import { ReflectionService } from "@grpc/reflection";
import { HealthImplementation } from "grpc-health-check";
import { file_google_rpc_error_details } from "../../../gen/google/rpc/error_details_pb.js";
import type { Gate } from "../../access/gate.ts";
import { type Address, formatAddress } from "../../config.ts";
import type { RpcMethod } from "../../rpc/rpc-method.ts";
import type { RequestLog } from "../../telemetry/log.ts";
import type { RunningListener } from "../running-listener.ts";
import { mountOnGrpc } from "./grpc-adapter.ts";
import { batchInterceptor } from "./grpc-batch.ts";
import { gateInterceptor } from "./grpc-gate.ts";

/** Settings of the gRPC transport. */
export interface GrpcOptions {
	readonly address: Address;
	readonly services: readonly DescService[];
	/** The methods of `services`. */
	readonly methods: readonly RpcMethod[];
	readonly gate: Gate;
	/** Most bytes of a request message. */
	readonly maxBodyBytes: number;
	/** Ends streams when it fires. */
	readonly stopping: AbortSignal;
	readonly log: RequestLog;
}

/** A gRPC listener. */
export interface GrpcListener extends RunningListener {
	/** Sets what the health service answers for each service and for the whole. Once stopping, it stays NOT_SERVING. */
	setServing(serving: boolean): void;
}

/**
 * Listens for gRPC: the services, `grpc.health.v1.Health` and server reflection.
 *
 * @throws Error when the address cannot be listened on
 */
export async function listenGrpc(options: GrpcOptions): Promise<GrpcListener> {
	const { address, services, methods, gate, maxBodyBytes, stopping, log } = options;
	const { interceptor, callerOf } = gateInterceptor(gate, log);
	// grpc-js would write to standard error in a form of its own. Failures reach the callers as errors.
	setLogVerbosity(logVerbosity.NONE);
	const server = new Server({
		"grpc.max_receive_message_length": maxBodyBytes,
		// Counts calls for a service that is not offered.
		"grpc.enable_channelz": 0,
		// Detects clients that vanished, so that their streams end.
		"grpc.keepalive_time_ms": 60_000,
		interceptors: [batchInterceptor, interceptor],
	});
	mountOnGrpc(server, methods, { callerOf, stopping, log });
	const health = new HealthImplementation();
	const setStatus = (status: "SERVING" | "NOT_SERVING"): void => {
		for (const service of ["", ...services.map(({ typeName }) => typeName)]) health.setStatus(service, status);
	};
	setStatus("SERVING");
	health.addToServer(server);
	new ReflectionService(
		packageDefinition([...services.map(({ file }) => file), file_google_rpc_error_details]),
	).addToServer(server);

	const bind = promisify(server.bindAsync.bind(server));
	const port = await bind(formatAddress(address), ServerCredentials.createInsecure());
	let stopped: Promise<void> | undefined;
	const shutdown = (): Promise<void> => {
		setStatus("NOT_SERVING");
		return promisify(server.tryShutdown.bind(server))();
	};
	return {
		address: { host: address.host, port },
		setServing: (serving) => {
			if (stopped === undefined) setStatus(serving ? "SERVING" : "NOT_SERVING");
		},
		stop: () => {
			stopped ??= shutdown();
			return stopped;
		},
		kill: () => server.forceShutdown(),
	};
}

/** Files and all that they import, in the form in which the reflection service takes them. */
function packageDefinition(roots: readonly DescFile[]) {
	const files = new Set<DescFile>();
	const add = (file: DescFile): void => {
		for (const dependency of file.dependencies) add(dependency);
		files.add(file);
	};
	for (const root of roots) add(root);
	const fileDescriptorProtos = [...files].map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto)));
	// The reflection service takes proto-loader's form of .proto files, and reads only the descriptors in it.
	const format: EnumTypeDefinition["format"] = "Protocol Buffer 3 EnumDescriptorProto";
	return { services: { format, type: {}, fileDescriptorProtos } };
}
