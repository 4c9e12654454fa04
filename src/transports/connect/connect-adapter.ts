import {
	Code,
	ConnectError,
	type ConnectRouter,
	createConnectRouter,
	createContextKey,
	createContextValues,
	type HandlerContext,
} from "@connectrpc/connect";
import {
	assertByteStreamRequest,
	createAsyncIterable,
	type UniversalHandler,
	type UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import {
	compressionGzip,
	universalRequestFromNodeRequest,
	universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import { type Gate, rpcPath } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import { type ErrorKind, ServiceError } from "../../errors.ts";
import { toConnectError } from "../../rpc/rpc-errors.ts";
import type { RpcMethod } from "../../rpc/rpc-method.ts";
import type { ObservedRequest } from "../../telemetry/requests.ts";
import { type Admission, type Work, workOf } from "../admission.ts";
import { sendStatus } from "../http/answer.ts";
import { enter } from "../http/enter.ts";
import type { HttpAnswer, ObservedAnswer } from "../http/http-listener.ts";
import { pathOf } from "../http/observed.ts";
import { type Credentials, credentialsOf } from "../http/router.ts";
import { limitAnswer } from "../http/when-gone.ts";
import { LIMITS, type Limits } from "../limits.ts";
import type { Permit } from "../permits.ts";
import { type StreamedRequest, takeMessage } from "./connect-request.ts";

/** Settings of the Connect transport. */
export interface ConnectOptions {
	readonly methods: readonly RpcMethod[];
	readonly gate: Gate;
	/** Counts the calls under way. */
	readonly admission: Pick<Admission, "enter">;
	/** Most bytes of a request message, after decompression. */
	readonly maxBodyBytes: number;
	/** Ends streams when it fires. */
	readonly stopping: AbortSignal;
	readonly limits?: Pick<Limits, "answerTime">;
}

/** A call under way: what its method needs, as it becomes known. */
interface Call {
	/** Access key, and name of the client's certificate. */
	readonly credentials: Credentials;
	caller: Principal | undefined;
	/** Counts the call from the gate on. */
	permit: Permit | undefined;
	/** Counts the call until its answer has left or its connection is gone. */
	readonly enter: (work: Work) => Permit;
	/** Why the call is refused, although it has its answer. */
	refusal: unknown;
	/** The encoded request. */
	message: Uint8Array | undefined;
	readonly seen: ObservedRequest;
	/** Tells of an error and gives it as clients see it. */
	readonly failed: (error: unknown) => ConnectError;
	/** Whether {@link failed} was called. */
	reported: boolean;
}

const CALL = createContextKey<Call | undefined>(undefined, { description: "call" });

/**
 * Serves methods over the Connect and gRPC-Web protocols.
 *
 * @param fallback answers requests whose path is not that of a method
 */
export function createConnectListener(options: ConnectOptions, fallback: ObservedAnswer): ObservedAnswer {
	const { methods, gate, admission, maxBodyBytes, stopping, limits = LIMITS } = options;
	const router = createConnectRouter({
		// gRPC has a listener of its own; over HTTP/1.1 it lacks its trailers.
		grpc: false,
		acceptCompression: [compressionGzip],
		// Answers are small or bounded by the page; compressing them costs more time than it saves.
		compressMinBytes: 0xffffffff,
		shutdownSignal: stopping,
		requestGate: (context) => {
			const call = callOf(context);
			const path = rpcPath(context.method);
			try {
				if (call.refusal !== undefined) throw call.refusal;
				call.caller = gate.admitRpc(path, ...call.credentials);
				call.seen.admitted(call.caller.name);
				call.permit = call.enter(workOf(gate.scopeOf(path), context.method.methodKind !== "unary"));
			} catch (error) {
				throw call.failed(error);
			}
		},
	});
	for (const rpc of methods) mount(router, rpc);
	const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
	return (request, response, seen) => {
		const handler = handlers.get(pathOf(request.url ?? ""));
		if (handler === undefined) {
			fallback(request, response, seen);
			return;
		}
		const grpcWeb = request.headers["content-type"]?.startsWith("application/grpc-web") === true;
		const transport = grpcWeb ? "grpc-web" : "connect";
		const entering = (work: Work): Permit => enter(admission, work, request, response, (error) => call.failed(error));
		const { requestPath } = handler;
		seen.routed({ transport, route: requestPath, operation: requestPath });
		const call = beginCall(seen, credentialsOf(request), entering);
		const limited = (): void => limitAnswer(request, response, limits);
		try {
			const values = createContextValues().set(CALL, call);
			const universal = universalRequestFromNodeRequest(request, response, undefined, values);
			assertByteStreamRequest(universal);
			answer(handler, universal, call, maxBodyBytes, response, limited);
		} catch (cause) {
			// The library builds a URL from the Host header and throws when it cannot.
			call.failed(new ServiceError("invalid_argument", "The Host header is malformed", { cause }));
			sendStatus(response, 400);
		}
	};
}

function beginCall(seen: ObservedRequest, credentials: Credentials, enter: Call["enter"]): Call {
	const call: Call = {
		seen,
		credentials,
		caller: undefined,
		permit: undefined,
		enter,
		refusal: undefined,
		message: undefined,
		reported: false,
		failed: (error) => {
			call.reported = true;
			seen.failed(error);
			return toConnectError(error);
		},
	};
	return call;
}

function answer(
	handler: UniversalHandler,
	request: StreamedRequest,
	call: Call,
	maxBytes: number,
	response: Parameters<HttpAnswer>[1],
	limited: () => void,
): void {
	const taking = takeMessage(request, {
		input: handler.method.input,
		maxBytes,
		take: (bytes) => call.permit?.take(bytes),
		taken: (message) => {
			call.message = message;
			call.seen.received(message.length);
		},
		failed: call.failed,
	});
	handler(taking)
		.then((answered) => (handler.method.methodKind === "unary" ? counted(answered, call.permit) : answered))
		.catch((error: unknown) => {
			if (!(error instanceof ServiceError)) throw error;
			// The library answers it in the form of the protocol.
			call.refusal = error;
			return handler({ ...request, body: createAsyncIterable([]) });
		})
		.then((answered) => {
			// What the library itself refuses, by the header of a request.
			if (answered.status >= 400 && !call.reported) call.failed(headerRefusal(answered.status));
			if (handler.method.methodKind === "unary") limited();
			return universalResponseToNodeResponse(answered, response);
		})
		.catch((error: unknown) => {
			// A client that has gone is no failure.
			if (!tellsThatClientHasGone(error)) call.failed(error);
			response.destroy();
		});
}

/**
 * Whether an answer could not be written because its client has gone. The library has a code for most of that, but not
 * for an answer that waits in the socket when the connection ends (libuv, ECANCELED and EPIPE).
 */
function tellsThatClientHasGone(error: unknown): boolean {
	const { code, cause } = ConnectError.from(error);
	if (code === Code.Aborted) return true;
	return cause instanceof Error && "code" in cause && (cause.code === "ECANCELED" || cause.code === "EPIPE");
}

/**
 * The answer to a unary call, counted.
 *
 * @throws ServiceError as {@link Permit.answer} does
 */
async function counted(
	answered: UniversalServerResponse,
	permit: Permit | undefined,
): Promise<UniversalServerResponse> {
	const chunks: Uint8Array[] = [];
	for await (const chunk of answered.body ?? []) chunks.push(chunk);
	permit?.answer(chunks.reduce((bytes, { byteLength }) => bytes + byteLength, 0));
	return { ...answered, body: createAsyncIterable(chunks) };
}

function headerRefusal(status: number): ServiceError {
	const kinds: Readonly<Record<number, ErrorKind>> = { 405: "method_not_allowed", 415: "unsupported_media_type" };
	return new ServiceError(kinds[status] ?? "invalid_argument", "The header of the request cannot be served");
}

function mount(router: ConnectRouter, rpc: RpcMethod): void {
	if (rpc.kind === "unary") {
		router.rpc(rpc.method, async (_, context) => {
			const call = callOf(context);
			const finished = call.permit?.work();
			try {
				return await call.seen.run(() => rpc.answer(...argumentsOf(call), context.signal));
			} catch (error) {
				// Nobody waits for a call that is over.
				throw context.signal.aborted ? toConnectError(context.signal.reason) : call.failed(error);
			} finally {
				finished?.();
			}
		});
		return;
	}
	router.rpc(rpc.method, async function* (_, context) {
		const call = callOf(context);
		try {
			for await (const batch of rpc.stream(...argumentsOf(call), context.signal))
				for (const { message } of batch) yield message;
		} catch (error) {
			// A stream that was ended from outside is no refusal.
			throw context.signal.aborted ? toConnectError(error) : call.failed(error);
		}
	});
}

function callOf({ values }: HandlerContext): Call {
	const call = values.get(CALL);
	if (call === undefined) throw new TypeError("a request came by no listener");
	return call;
}

/** The request and its caller. The library calls a method only after the gate, and after it has read the body. */
function argumentsOf({ message, caller }: Call): [Uint8Array, Principal] {
	if (message === undefined || caller === undefined)
		throw new TypeError("a method was called before its request was read");
	return [message, caller];
}
