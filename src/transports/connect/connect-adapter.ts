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
import { type Admission, type Permit, type Work, workOf } from "../admission.ts";
import { sendStatus } from "../http/answer.ts";
import { enter } from "../http/enter.ts";
import type { HttpHandler, ObservedHandler } from "../http/http-listener.ts";
import { type Credentials, credentialsOf } from "../http/router.ts";
import { limitResponseTime } from "../http/when-gone.ts";
import { LIMITS, type Limits } from "../limits.ts";
import { type StreamedRequest, takeMessage } from "./connect-request.ts";

/** Settings of the Connect transport. */
export interface ConnectOptions {
	readonly methods: readonly RpcMethod[];
	readonly gate: Gate;
	/** Counts the calls under way. */
	readonly admission: Pick<Admission, "enter">;
	/** Maximum number of bytes of a request message, after decompression. */
	readonly maxBodyBytes: number;
	/** Ends all streams when it is aborted. */
	readonly stopping: AbortSignal;
	readonly limits?: Pick<Limits, "answerTime">;
}

/** A call under way. The undefined members are set as the call proceeds. */
interface Call {
	/** Access key, or name of the client's certificate. */
	readonly credentials: Credentials;
	caller: Principal | undefined;
	/** Permit of the call. Undefined until the gate has let the call in. */
	permit: Permit | undefined;
	/** Admits the call, which counts from then on until its response has left or its connection is gone. */
	readonly enter: (work: Work) => Permit;
	/** Error with which the call is refused after its method has returned, because the response has no room. */
	refusal: unknown;
	/** The encoded request. */
	message: Uint8Array | undefined;
	readonly seen: ObservedRequest;
	/** Reports an error to `seen`, and returns it in the form that clients see. */
	readonly failed: (error: unknown) => ConnectError;
	/** Whether {@link failed} was called. */
	reported: boolean;
}

const CALL = createContextKey<Call | undefined>(undefined, { description: "call" });

/** Returns the handlers that serve methods over the Connect and gRPC-Web protocols, by path. */
export function connectHandlers(options: ConnectOptions): ReadonlyMap<string, ObservedHandler> {
	const { methods, gate, admission, maxBodyBytes, stopping, limits = LIMITS } = options;
	const router = createConnectRouter({
		// gRPC has a listener of its own, and over HTTP/1.1 it would lack its trailers.
		grpc: false,
		acceptCompression: [compressionGzip],
		// Responses are small or limited by the page size, so compression costs more time than it saves.
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
	const handle =
		(handler: UniversalHandler): ObservedHandler =>
		(request, response, seen) => {
			const grpcWeb = request.headers["content-type"]?.startsWith("application/grpc-web") === true;
			const transport = grpcWeb ? "grpc-web" : "connect";
			const enterCall = (work: Work): Permit => enter(admission, work, request, response);
			const { requestPath } = handler;
			seen.routed({ transport, route: requestPath, operation: requestPath });
			const call = beginCall(seen, credentialsOf(request), enterCall);
			const limitTime = (): void => limitResponseTime(request, response, limits);
			try {
				const values = createContextValues().set(CALL, call);
				const universal = universalRequestFromNodeRequest(request, response, undefined, values);
				assertByteStreamRequest(universal);
				answer(handler, universal, call, maxBodyBytes, response, limitTime);
			} catch (cause) {
				// The library builds a URL from the Host header, and throws if the header is malformed.
				call.failed(new ServiceError("invalid_argument", "The Host header is malformed", { cause }));
				sendStatus(response, 400);
			}
		};
	return new Map(router.handlers.map((handler) => [handler.requestPath, handle(handler)]));
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
	response: Parameters<HttpHandler>[1],
	limitTime: () => void,
): void {
	const emptied = takeMessage(request, {
		input: handler.method.input,
		maxBytes,
		reserve: (bytes) => call.permit?.reserve(bytes),
		onMessage: (message) => {
			call.message = message;
			call.seen.received(message.length);
		},
		failed: call.failed,
	});
	handler(emptied)
		.then((answered) => (handler.method.methodKind === "unary" ? countResponse(answered, call.permit) : answered))
		.catch((error: unknown) => {
			if (!(error instanceof ServiceError)) throw error;
			// Runs the handler again. Its gate throws the error, which the library sends in the form of the protocol.
			call.refusal = error;
			return handler({ ...request, body: createAsyncIterable([]) });
		})
		.then((answered) => {
			// The library itself refuses some requests because of their header.
			if (answered.status >= 400 && !call.reported) call.failed(headerRefusal(answered.status));
			if (handler.method.methodKind === "unary") limitTime();
			return universalResponseToNodeResponse(answered, response);
		})
		.catch((error: unknown) => {
			// A client that has gone is not a failure.
			if (!isClientGone(error)) call.failed(error);
			response.destroy();
		});
}

/**
 * Whether an error says that a response could not be written because its client has gone. The library uses `Aborted`
 * for most such errors, but not for a response that waits in the socket when the connection ends (libuv's ECANCELED,
 * EPIPE).
 */
function isClientGone(error: unknown): boolean {
	const { code, cause } = ConnectError.from(error);
	if (code === Code.Aborted) return true;
	return cause instanceof Error && "code" in cause && (cause.code === "ECANCELED" || cause.code === "EPIPE");
}

/**
 * Returns the response to a unary call after its bytes have been counted.
 *
 * @throws ServiceError as {@link Permit.reserveResponse} does
 */
async function countResponse(
	answered: UniversalServerResponse,
	permit: Permit | undefined,
): Promise<UniversalServerResponse> {
	const chunks: Uint8Array[] = [];
	for await (const chunk of answered.body ?? []) chunks.push(chunk);
	permit?.reserveResponse(chunks.reduce((bytes, { byteLength }) => bytes + byteLength, 0));
	return { ...answered, body: createAsyncIterable(chunks) };
}

/** Returns the error to report for a request that the library has refused because of its header. */
function headerRefusal(status: number): ServiceError {
	const kinds: Readonly<Record<number, ErrorKind>> = { 405: "method_not_allowed", 415: "unsupported_media_type" };
	return new ServiceError(kinds[status] ?? "invalid_argument", "The headers of the request are not supported");
}

function mount(router: ConnectRouter, rpc: RpcMethod): void {
	if (rpc.kind === "unary") {
		router.rpc(rpc.method, async (_, context) => {
			const call = callOf(context);
			const release = call.permit?.hold();
			try {
				return await call.seen.run(() => rpc.handle(...argumentsOf(call), context.signal));
			} catch (error) {
				// A call that is over did not fail: nobody waits for its response.
				throw context.signal.aborted ? toConnectError(context.signal.reason) : call.failed(error);
			} finally {
				release?.();
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
			// A stream that its client cancelled, or that the service stopped, did not fail.
			throw context.signal.aborted ? toConnectError(error) : call.failed(error);
		}
	});
}

function callOf({ values }: HandlerContext): Call {
	const call = values.get(CALL);
	if (call === undefined) throw new TypeError("the request did not come from a listener");
	return call;
}

/**
 * Returns the request and its caller. The library calls a method only after the gate and after it has read the body.
 */
function argumentsOf({ message, caller }: Call): [Uint8Array, Principal] {
	if (message === undefined || caller === undefined)
		throw new TypeError("a method was called before its request was read");
	return [message, caller];
}
