import { formatPath, ServiceError, type Violation } from "../errors.ts";
import { echoable } from "../userinfo.ts";

export type Transport = "http" | "connect" | "grpc-web" | "grpc";

/** A request as the log describes it. */
export interface RequestInfo {
	readonly transport: Transport;
	/** Method and path of a route, such as `POST /api/v1/webhooks/conversations`, or the path of an RPC. */
	readonly operation: string;
	/** Request id, chosen by the caller or by the service. */
	readonly requestId?: string | undefined;
	/** Id of the trace that the request belongs to. Undefined when tracing is off. */
	readonly traceId?: string | undefined;
	/** Name of the access key. Undefined when the request had no valid key. */
	readonly caller?: string | undefined;
	/** Address and port of the client, for a request without a valid key. */
	readonly peer?: string | undefined;
	/** Conversation that the request names. The conversation of a {@link ServiceError} takes precedence. */
	readonly conversationId?: string | undefined;
}

/** Maximum number of paths of violations in a line. */
const MAX_PLACES = 10;
/**
 * Maximum number of characters of a path, an operation or a detail. A client controls the length of some of these
 * texts.
 */
const MAX_TEXT = 160;

/** Returns the fields of a log line about a request. */
export function requestFields(request: RequestInfo, error: unknown) {
	const { transport, operation, requestId, traceId, peer, conversationId } = request;
	const serviceError = error instanceof ServiceError ? error : undefined;
	const id = serviceError?.conversationId ?? conversationId;
	const caller = request.caller ?? serviceError?.caller;
	return {
		transport,
		operation: shorten(operation),
		caller,
		// The address finds a sender that no name identifies.
		peer: caller === undefined ? peer : undefined,
		requestId,
		traceId,
		// The client may have sent anything in place of a UUID.
		conversationId: id !== undefined && /^[0-9a-fA-F-]{32,36}$/.test(id) ? id : undefined,
	};
}

/** Returns how often each rule was broken, and the first paths. A path holds names of members and no values. */
export function brokenRules(violations: readonly Violation[], root: string) {
	const reasons: Record<string, number> = {};
	for (const { type } of violations) reasons[type] = (reasons[type] ?? 0) + 1;
	const locs = violations.slice(0, MAX_PLACES).map(({ path, part = root }) => shorten(part + formatPath(path)));
	return { reasons, locs };
}

/** Returns the beginning of a text that a client may have chosen, without passwords and tokens in URLs. */
export function shorten(whole: string): string {
	const text = echoable(whole);
	return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

interface ErrorDescription {
	type: string;
	code?: string | number;
	message?: string;
	cause?: ErrorDescription;
	/** `at <place> at <place>…`, innermost first. */
	stack?: string;
}

/**
 * Describes an error. Messages are included for some errors only, such as those of the store, which name files.
 * Messages of JSON.parse and of decoders quote their input, which may be a secret.
 */
export function describe(error: unknown, withMessage: boolean, depth = 0): ErrorDescription {
	if (!(error instanceof Error)) {
		return { type: typeof error };
	}
	const description: ErrorDescription = { type: error.name };
	if ("code" in error && (typeof error.code === "string" || typeof error.code === "number"))
		description.code = error.code;
	if (withMessage) description.message = error.message;
	if (error.cause !== undefined && depth < 3) description.cause = describe(error.cause, withMessage, depth + 1);
	description.stack = stackOf(error);
	return description;
}

/** URL of the program's folder, which the places in a stack begin with. */
const ROOT = new URL("../../", import.meta.url).href;

/**
 * Returns the stack of an error in one line, without the message with which its text begins, and without the frames of
 * Node.js itself.
 */
function stackOf(error: Error): string {
	const stack = error.stack ?? "";
	const start = stack.indexOf(error.message);
	const rest = start === -1 ? stack : stack.slice(start + error.message.length);
	const frames = rest.split("\n").flatMap((line) => /^ {4}(at .*:\d+:\d+\)?)$/.exec(line)?.[1] ?? []);
	return frames
		.filter((frame) => !/[ (]node:/.test(frame))
		.join(" ")
		.replaceAll(ROOT, "");
}
