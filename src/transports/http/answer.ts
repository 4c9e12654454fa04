import { type ErrorKind, RETRY_AFTER_SECONDS, ServiceError, type Violation } from "../../errors.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import type { HttpResponse } from "./http-listener.ts";

const STATUSES: Readonly<Record<ErrorKind, number>> = {
	invalid_record: 422,
	invalid_argument: 400,
	unauthenticated: 401,
	permission_denied: 403,
	not_found: 404,
	already_exists: 409,
	failed_precondition: 412,
	method_not_allowed: 405,
	out_of_range: 410,
	too_large: 413,
	rate_limited: 429,
	unsupported_media_type: 415,
	data_loss: 500,
	internal: 500,
	unavailable: 503,
};

/** A response with a status and a media type of its own. */
export interface ContentResponse {
	readonly status: number;
	readonly content: string | Buffer;
	/** Media type. */
	readonly type: string;
	/** Further headers. */
	readonly headers?: Readonly<Record<string, string>>;
}

/** An error as clients see it. Of an error other than a `ServiceError` they learn only that it happened. */
export interface ShownError {
	/** HTTP status. */
	readonly status: number;
	/** A sentence; of a record that breaks rules, the list of violations. */
	readonly detail: string | readonly ReturnType<typeof validationError>[];
	/** Seconds to wait before the next attempt. */
	readonly retryAfter: number | undefined;
}

/** Returns an error in the form of the specification: `HTTPValidationError` for a record that breaks rules. */
export function shownError(error: unknown): ShownError {
	if (!(error instanceof ServiceError)) return { status: 500, detail: "Internal error", retryAfter: undefined };
	const detail = error.kind === "invalid_record" ? error.violations.map(validationError) : error.message;
	return { status: STATUSES[error.kind], detail, retryAfter: RETRY_AFTER_SECONDS[error.kind] };
}

/** Sends an error as a JSON object whose `detail` is that of {@link shownError}. */
export function sendError(response: HttpResponse, error: unknown): void {
	const { status, detail, retryAfter } = shownError(error);
	if (status === 401) response.setHeader("WWW-Authenticate", "APIKey");
	if (retryAfter !== undefined) response.setHeader("Retry-After", String(retryAfter));
	sendJsonText(response, status, stringifyExactJson({ detail }));
}

/** Returns the `ValidationError` of the specification for a violation. */
function validationError({ path, part = "body", type, message, context, input }: Violation) {
	return {
		type,
		loc: [part, ...path],
		msg: message,
		...(input === undefined ? {} : { input }),
		...(context === undefined ? {} : { ctx: context }),
	};
}

/** Sends a response whose body is a JSON text. */
export function sendJsonText(response: HttpResponse, status: number, text: string): void {
	sendContent(response, { status, content: text, type: "application/json" });
}

/** Headers of every response with a body: what one caller may read is not kept for others, and is read as what it is. */
const HEADERS = { "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff" };

/** Sends a response with a body. */
export function sendContent(response: HttpResponse, { status, content, type, headers }: ContentResponse): void {
	response.writeHead(status, {
		...HEADERS,
		...headers,
		"Content-Type": type,
		"Content-Length": Buffer.byteLength(content),
	});
	response.end(content);
}

/** Sends a response without a body. */
export function sendStatus(response: HttpResponse, status: number): void {
	response.writeHead(status);
	response.end("");
}
