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
import type { ServiceRegistrar } from "../../rpc/services.ts";
import type { Log } from "../../telemetry/log.ts";
import type { Listener } from "../listener.ts";
import { grpcRegistrar } from "./adapter.ts";
import { batchInterceptor } from "./batch.ts";
import { gateInterceptor } from "./gate.ts";

/** Settings of the gRPC transport. */
export interface GrpcOptions {
	readonly address: Address;
	readonly services: readonly DescService[];
	/** Registers the implementations of `services`. */
	readonly register: (registrar: ServiceRegistrar) => void;
	readonly gate: Gate;
	/** Most bytes of a request message. */
	readonly maxBodyBytes: number;
	/** Ends streams when it fires. */
	readonly stopping: AbortSignal;
	readonly log: Log;
}

/**
 * Listens for gRPC: the services, `grpc.health.v1.Health` and server reflection.
 *
 * @throws Error when the address cannot be listened on
 */
export async function listenGrpc(options: GrpcOptions): Promise<Listener> {
	const { address, services, register, gate, maxBodyBytes, stopping, log } = options;
	const { interceptor, principalOf } = gateInterceptor(gate, log);
	// It writes to standard error in a form of its own; what fails reaches the callers as errors.
	setLogVerbosity(logVerbosity.NONE);
	const server = new Server({
		"grpc.max_receive_message_length": maxBodyBytes,
		// Finds out about clients that vanished, so that their streams end.
		"grpc.keepalive_time_ms": 60_000,
		interceptors: [batchInterceptor, interceptor],
	});
	register(grpcRegistrar(server, principalOf, stopping));
	const health = new HealthImplementation({ "": "SERVING" });
	for (const service of services) health.setStatus(service.typeName, "SERVING");
	health.addToServer(server);
	new ReflectionService(
		packageDefinition([...services.map(({ file }) => file), file_google_rpc_error_details]),
	).addToServer(server);

	const bind = promisify(server.bindAsync.bind(server));
	const port = await bind(formatAddress(address), ServerCredentials.createInsecure());
	let stopped: Promise<void> | undefined;
	const shutdown = (): Promise<void> => {
		for (const service of ["", ...services.map(({ typeName }) => typeName)]) health.setStatus(service, "NOT_SERVING");
		return promisify(server.tryShutdown.bind(server))();
	};
	return {
		address: { host: address.host, port },
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
	// Reflection takes what proto-loader makes of .proto files, of which it reads nothing but the descriptors.
	const format: EnumTypeDefinition["format"] = "Protocol Buffer 3 EnumDescriptorProto";
	return { services: { format, type: {}, fileDescriptorProtos } };
}
