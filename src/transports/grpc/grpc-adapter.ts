import type {
	Metadata,
	MethodDefinition,
	Server,
	ServerUnaryCall,
	ServerWritableStream,
	sendUnaryData,
} from "@grpc/grpc-js";
import { rpcPath } from "../../access/gate.ts";
import type { CallSignal } from "../../call-signal.ts";
import { ServiceError } from "../../errors.ts";
import type { RpcMethod, StreamRpc, UnaryRpc } from "../../rpc/rpc-method.ts";
import type { HeldBatches } from "../stream-messages.ts";
import { grpcStatus, MessageBatch } from "./grpc-call.ts";
import type { AdmittedCall, FindAdmitted } from "./grpc-gate.ts";

/** Values that all methods of a server share. */
export interface GrpcCalls {
	readonly findAdmitted: FindAdmitted;
	/** Counts the messages that streams hold. */
	readonly held: HeldBatches;
	/** Ends all streams when it is aborted. */
	readonly stopping: AbortSignal;
}

/** Mounts methods on a grpc-js server. Requests and responses pass through grpc-js as encoded bytes. */
export function mountOnGrpc(server: Server, methods: readonly RpcMethod[], calls: GrpcCalls): void {
	for (const rpc of methods) {
		const name = rpc.method.localName;
		const handler = rpc.kind === "unary" ? unaryHandler(rpc, calls) : streamHandler(rpc, calls);
		server.addService({ [name]: definitionOf(rpc) }, { [name]: handler });
	}
}

function definitionOf({ kind, method }: RpcMethod): MethodDefinition<Uint8Array, Uint8Array> {
	return {
		path: rpcPath(method),
		requestStream: false,
		responseStream: kind === "server_streaming",
		requestSerialize: asBuffer,
		requestDeserialize: (bytes) => bytes,
		responseSerialize: asBuffer,
		responseDeserialize: (bytes) => bytes,
	};
}

function asBuffer(bytes: Uint8Array): Buffer {
	return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function unaryHandler({ handle }: UnaryRpc, { findAdmitted }: GrpcCalls) {
	return (call: ServerUnaryCall<Uint8Array, Uint8Array>, callback: sendUnaryData<Uint8Array>): void => {
		const signal = new GrpcCallSignal(call);
		const answer = async () => {
			const { caller, permit, observed } = admittedCall(findAdmitted, call.metadata);
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
				if (!call.cancelled) findAdmitted(call.metadata)?.observed.failed(error);
				callback(grpcStatus(error));
			},
		);
	};
}

/** Aborted when a call is cancelled or its deadline has passed. Costs less than an AbortController for each call. */
class GrpcCallSignal implements CallSignal {
	readonly #call: Pick<ServerUnaryCall<unknown, unknown>, "cancelled" | "getDeadline">;

	constructor(call: Pick<ServerUnaryCall<unknown, unknown>, "cancelled" | "getDeadline">) {
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

type WatchCall = ServerWritableStream<Uint8Array, Uint8Array | MessageBatch>;

function streamHandler({ stream }: StreamRpc, { findAdmitted, held, stopping }: GrpcCalls) {
	return (call: WatchCall): void => {
		const cancelled = new AbortController();
		const stop = (): void => cancelled.abort();
		call.on("cancelled", stop);
		stopping.addEventListener("abort", stop);
		if (stopping.aborted) stop();
		const send = async (): Promise<void> => {
			for await (const batch of stream(
				call.request,
				admittedCall(findAdmitted, call.metadata).caller,
				cancelled.signal,
			)) {
				const { chunks, release } = held.hold(batch, "bytes");
				await write(call, new MessageBatch(chunks), cancelled.signal).finally(release);
			}
		};
		send()
			.then(
				() => call.end(),
				(error: unknown) => {
					// A stream that its client cancelled, or that the service stopped, did not fail.
					if (!cancelled.signal.aborted) findAdmitted(call.metadata)?.observed.failed(error);
					// grpc-js sends the status that an error event of the stream carries.
					if (!call.cancelled) call.emit("error", grpcStatus(error));
				},
			)
			.finally(() => stopping.removeEventListener("abort", stop));
	};
}

/** Writes a batch, and waits until the client has taken it or the call is over. A call has one write at a time. */
async function write(call: WatchCall, batch: MessageBatch, signal: AbortSignal): Promise<void> {
	if (signal.aborted) return;
	await new Promise<void>((resolve) => {
		const done = (): void => {
			signal.removeEventListener("abort", done);
			resolve();
		};
		// The callback of a write to a client that has gone is never called.
		signal.addEventListener("abort", done);
		call.write(batch, done);
	});
}

/** Returns the call that the gate has let in with this metadata. */
function admittedCall(findAdmitted: FindAdmitted, metadata: Metadata): AdmittedCall {
	const call = findAdmitted(metadata);
	// Cannot happen, because calls reach a method only through the gate.
	if (call === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
	return call;
}
