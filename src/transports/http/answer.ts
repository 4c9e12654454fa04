import type { ServerResponse } from "node:http";
import { type ErrorKind, ServiceError, type Violation } from "../../errors.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";

const STATUSES: Readonly<Record<ErrorKind, number>> = {
	invalid_record: 422,
	invalid_argument: 400,
	unauthenticated: 401,
	permission_denied: 403,
	not_found: 404,
	method_not_allowed: 405,
	out_of_range: 410,
	too_large: 413,
	unsupported_media_type: 415,
	data_loss: 500,
	internal: 500,
	unavailable: 503,
};

/**
 * Answers a request with an error in the specification's form: `HTTPValidationError` for a record that breaks rules,
 * else a JSON object whose `detail` is a sentence. An error that is not the service's own is a 500 that says nothing.
 */
export function sendError(response: ServerResponse, error: unknown): void {
	if (!(error instanceof ServiceError)) {
		sendJsonText(response, 500, JSON.stringify({ detail: "Internal error" }));
		return;
	}
	if (error.kind === "unauthenticated") response.setHeader("WWW-Authenticate", "APIKey");
	if (error.kind === "unavailable") response.setHeader("Retry-After", "5");
	const detail = error.kind === "invalid_record" ? error.violations.map(validationError) : error.message;
	sendJsonText(response, STATUSES[error.kind], stringifyExactJson({ detail }));
}

/** The specification's `ValidationError`. */
function validationError({ path, part = "body", type, message, context, input }: Violation) {
	return {
		type,
		loc: [part, ...path],
		msg: message,
		...(input === undefined ? {} : { input }),
		...(context === undefined ? {} : { ctx: context }),
	};
}

/** Answers with a JSON text. */
export function sendJsonText(response: ServerResponse, status: number, text: string): void {
	response.writeHead(status, {
		"Content-Type": "application/json",
		"Content-Length": Buffer.byteLength(text),
	});
	response.end(text);
}
