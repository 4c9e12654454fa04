import type {
	Metadata,
	MethodDefinition,
	Server,
	ServerUnaryCall,
	ServerWritableStream,
	sendUnaryData,
} from "@grpc/grpc-js";
import { rpcPath } from "../../access/gate.ts";
import type { CallSignal } from "../../conversations/ingest/call-signal.ts";
import { ServiceError } from "../../errors.ts";
import type { RpcMethod, StreamRpc, UnaryRpc } from "../../rpc/rpc-method.ts";
import { MessageBatch } from "./grpc-batch.ts";
import type { AdmittedBy, AdmittedCall } from "./grpc-gate.ts";
import { grpcStatus } from "./grpc-status.ts";

/** What the methods of a server have in common. */
export interface GrpcCalls {
	readonly admittedBy: AdmittedBy;
	/** Ends streams when it fires. */
	readonly stopping: AbortSignal;
}

/** Mounts methods on a grpc-js server. Requests and responses cross grpc-js as bytes. */
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

function unaryHandler({ answerEncoded }: UnaryRpc, { admittedBy }: GrpcCalls) {
	return (call: ServerUnaryCall<Uint8Array, Uint8Array>, callback: sendUnaryData<Uint8Array>): void => {
		const signal = new GrpcCallSignal(call);
		const answer = async () => {
			const { caller, permit, seen } = admitted(admittedBy, call.metadata);
			const finished = permit.work();
			try {
				const response = await seen.run(() => answerEncoded(call.request, caller, signal));
				permit.answer(response.byteLength);
				return response;
			} finally {
				finished();
			}
		};
		answer().then(
			(response) => callback(null, response),
			(error: unknown) => {
				// Nobody waits for a call that is over.
				if (!call.cancelled) admittedBy(call.metadata)?.seen.failed(error);
				callback(grpcStatus(error));
			},
		);
	};
}

/** Fires when a call is cancelled or its deadline is over. An AbortController for each call costs more than to ask. */
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

type StreamCall = ServerWritableStream<Uint8Array, Uint8Array | MessageBatch>;

function streamHandler({ stream }: StreamRpc, { admittedBy, stopping }: GrpcCalls) {
	return (call: StreamCall): void => {
		const cancelled = new AbortController();
		const stop = (): void => cancelled.abort();
		call.on("cancelled", stop);
		stopping.addEventListener("abort", stop);
		if (stopping.aborted) stop();
		const send = async (): Promise<void> => {
			for await (const batch of stream(call.request, admitted(admittedBy, call.metadata).caller, cancelled.signal))
				await write(call, new MessageBatch(batch.map(({ bytes }) => bytes)), cancelled.signal);
		};
		send()
			.then(
				() => call.end(),
				(error: unknown) => {
					// A stream that was ended from outside is no refusal.
					if (!cancelled.signal.aborted) admittedBy(call.metadata)?.seen.failed(error);
					// grpc-js sends the status of an error that the stream emits.
					if (!call.cancelled) call.emit("error", grpcStatus(error));
				},
			)
			.finally(() => stopping.removeEventListener("abort", stop));
	};
}

/** Resolves when the client has taken the batch, or when the call is over. Never more than one write is under way. */
async function write(call: StreamCall, batch: MessageBatch, signal: AbortSignal): Promise<void> {
	if (signal.aborted) return;
	await new Promise<void>((resolve) => {
		const done = (): void => {
			signal.removeEventListener("abort", done);
			resolve();
		};
		// A write to a client that has gone is never done.
		signal.addEventListener("abort", done);
		call.write(batch, done);
	});
}

function admitted(admittedBy: AdmittedBy, metadata: Metadata): AdmittedCall {
	const call = admittedBy(metadata);
	// No call reaches a method without the gate.
	if (call === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
	return call;
}
