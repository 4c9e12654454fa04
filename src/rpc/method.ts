import { Code, ConnectError, createContextKey, type HandlerContext } from "@connectrpc/connect";
import type { Principal } from "../access/keys.ts";
import { ServiceError } from "../errors.ts";
import type { Log } from "../telemetry/log.ts";
import { toConnectError } from "./errors.ts";

/** Where a transport puts the principal that the gate has admitted. */
export const PRINCIPAL = createContextKey<Principal | undefined>(undefined, { description: "principal" });

/** Whom a call comes from. No call reaches a method without the gate. */
export function principalOf(context: HandlerContext): Principal {
	const principal = context.values.get(PRINCIPAL);
	if (principal === undefined) throw new ConnectError("the gate has not admitted the call", Code.Unauthenticated);
	return principal;
}

/** Makes a unary method whose errors reach clients as {@link toConnectError} maps them. */
export function unary<Request, Response>(
	log: Log,
	answer: (request: Request, context: HandlerContext) => Promise<Response>,
): (request: Request, context: HandlerContext) => Promise<Response> {
	return async (request, context) => {
		try {
			return await answer(request, context);
		} catch (error) {
			throw reported(log, context, error);
		}
	};
}

/** Makes a server-streaming method whose errors reach clients as {@link toConnectError} maps them. */
export function serverStream<Request, Response>(
	log: Log,
	answer: (request: Request, context: HandlerContext) => AsyncIterable<Response>,
): (request: Request, context: HandlerContext) => AsyncIterable<Response> {
	return async function* (request, context) {
		try {
			yield* answer(request, context);
		} catch (error) {
			throw reported(log, context, error);
		}
	};
}

function reported(log: Log, context: HandlerContext, error: unknown): ConnectError {
	const transport = context.protocolName === "grpc" ? "grpc" : "connect";
	if (error instanceof ServiceError) log.requestRefused(transport, error);
	else if (!(error instanceof ConnectError)) log.unexpectedError(transport, error);
	return toConnectError(error);
}
