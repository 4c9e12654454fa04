import type { RequestListener } from "node:http";
import type { DescService } from "@bufbuild/protobuf";
import { createContextValues } from "@connectrpc/connect";
import { compressionGzip, connectNodeAdapter } from "@connectrpc/connect-node";
import { type Gate, KEY_HEADER, rpcPath } from "../../access/gate.ts";
import { toConnectError } from "../../rpc/errors.ts";
import { PRINCIPAL } from "../../rpc/method.ts";
import type { ServiceRegistrar } from "../../rpc/services.ts";

/** Settings of the Connect transport. */
export interface ConnectOptions {
	/** Registers the services. */
	readonly register: (registrar: ServiceRegistrar) => void;
	readonly gate: Gate;
	/** Most bytes of a request message, after decompression. */
	readonly maxBodyBytes: number;
	/** Ends streams when it fires. */
	readonly stopping: AbortSignal;
	readonly services: readonly DescService[];
}

/**
 * Serves the RPCs over the Connect and gRPC-Web protocols on an HTTP/1.1 server.
 *
 * @param fallback answers requests whose path is not that of an RPC
 */
export function createConnectListener(options: ConnectOptions, fallback: RequestListener): RequestListener {
	const { services, register, gate, maxBodyBytes, stopping } = options;
	const paths = new Set(services.flatMap((service) => service.methods.map(rpcPath)));
	const listener = connectNodeAdapter({
		routes: register,
		// gRPC has a listener of its own; over HTTP/1.1 it would lack its trailers.
		grpc: false,
		acceptCompression: [compressionGzip],
		// Answers are small or already bounded by the page; compressing them costs more time than it saves.
		compressMinBytes: 0xffffffff,
		readMaxBytes: maxBodyBytes,
		shutdownSignal: stopping,
		contextValues: () => createContextValues(),
		requestGate: (context) => {
			try {
				const key = context.requestHeader.get(KEY_HEADER) ?? undefined;
				context.values.set(PRINCIPAL, gate.admitRpc(rpcPath(context.method), key));
			} catch (error) {
				throw toConnectError(error);
			}
		},
	});
	return (request, response) => {
		if (!paths.has((request.url ?? "").split("?", 1)[0] ?? "")) {
			fallback(request, response);
			return;
		}
		try {
			listener(request, response);
		} catch {
			// The adapter builds a URL from the Host header and throws when it cannot.
			response.writeHead(400, { Connection: "close" }).end();
		}
	};
}
