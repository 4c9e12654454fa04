import { formatPath, ServiceError, type Violation } from "../errors.ts";

export type Transport = "http" | "connect" | "grpc-web" | "grpc";

/** A request, as the log names it. */
export interface RequestInfo {
	readonly transport: Transport;
	/** Method and path of a route, such as `POST /api/v1/webhooks/conversations`, or the path of an RPC. */
	readonly operation: string;
	/** Id that the caller gave the request, or the service. */
	readonly requestId?: string | undefined;
	/** Trace that the request belongs to. Undefined when no traces are made. */
	readonly traceId?: string | undefined;
	/** Name of the access key. Undefined when the request had no right one. */
	readonly caller?: string | undefined;
	/** Conversation that the request names. What an error names comes first. */
	readonly conversationId?: string | undefined;
}

/** Most places of broken rules in a line. */
const MAX_PLACES = 10;
/** Most characters of a place, and of an operation: a client can make both as long as it likes. */
const MAX_TEXT = 160;

/** What requests for the same thing by the same caller have in common, and which one it is. */
export function requestFields(request: RequestInfo, error: unknown) {
	const { transport, operation, requestId, traceId, conversationId } = request;
	const told = error instanceof ServiceError ? error : undefined;
	const id = told?.conversationId ?? conversationId;
	const caller = request.caller ?? told?.caller;
	return {
		who: { transport, operation: shorten(operation), caller },
		which: {
			requestId,
			traceId,
			// What a client gave in place of a UUID may be anything.
			conversationId: id !== undefined && /^[0-9a-fA-F-]{32,36}$/.test(id) ? id : undefined,
		},
	};
}

/** How often each rule was broken, and the first places. A place holds names of members and no values. */
export function brokenRules(violations: readonly Violation[], root: string) {
	const reasons: Record<string, number> = {};
	for (const { type } of violations) reasons[type] = (reasons[type] ?? 0) + 1;
	const locs = violations.slice(0, MAX_PLACES).map(({ path, part = root }) => shorten(part + formatPath(path)));
	return { reasons, locs };
}

/** Why a request was refused that breaks no rule of a record: what its sender is told. Holds no value out of a body. */
export function refusalDetails({ violations, message }: ServiceError): string[] {
	return violations.length === 0 ? [shorten(message)] : [];
}

function shorten(text: string): string {
	return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

interface ErrorDescription {
	type: string;
	code?: string | number;
	message?: string;
	stack?: string[];
	cause?: ErrorDescription;
}

/**
 * Describes an error. The message goes in only for the store's errors, which name files. Those of JSON.parse and of
 * decoders quote the text that they refuse, which may be a secret.
 */
export function describe(error: unknown, withMessage: boolean, depth = 0): ErrorDescription {
	if (!(error instanceof Error)) {
		return { type: typeof error };
	}
	const description: ErrorDescription = { type: error.name };
	if ("code" in error && (typeof error.code === "string" || typeof error.code === "number"))
		description.code = error.code;
	if (withMessage) description.message = error.message;
	description.stack = frames(error);
	if (error.cause !== undefined && depth < 3) description.cause = describe(error.cause, withMessage, depth + 1);
	return description;
}

/** Places in the source that an error passed, innermost first, without the message that a stack text begins with. */
function frames(error: Error): string[] {
	const stack = error.stack ?? "";
	const start = stack.indexOf(error.message);
	const rest = start === -1 ? stack : stack.slice(start + error.message.length);
	return rest.split("\n").flatMap((line) => /^ {4}at (.*:\d+:\d+\)?)$/.exec(line)?.[1] ?? []);
}

/** An error in one line: its types and messages, or without those the place where it was made. */
export function shortly(error: unknown, withMessage: boolean): string {
	if (!(error instanceof Error)) return typeof error;
	if (!withMessage) return [error.name, frames(error)[0]].filter(Boolean).join(" at ");
	const own = `${error.name}: ${error.message}`;
	return shorten(error.cause instanceof Error ? `${own}: ${error.cause.message}` : own);
}
