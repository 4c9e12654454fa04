import { isAscii, isUtf8 } from "node:buffer";
import type { JsonValue } from "@bufbuild/protobuf";
import type { Ingest } from "../../conversations/ingest.ts";
import { ServiceError } from "../../errors.ts";
import type { RecordFormat } from "../../record/record.ts";
import { sendText } from "../http/answer.ts";
import { readBody } from "../http/body.ts";
import { isJson } from "../http/media-type.ts";
import type { Route } from "../http/router.ts";
import { locateJsonError } from "./json-syntax.ts";

/** Path of the webhook under the configured base path (specification, "Conversation update callback"). */
export const WEBHOOK_PATH = "/api/v1/webhooks/conversations";

const SUCCESS = JSON.stringify({ success: true });

/** The agent server's callback: takes a record as JSON and answers success when it is on disk. */
export function webhookRoute(basePath: string, maxBodyBytes: number, format: RecordFormat, ingest: Ingest): Route {
	return {
		method: "POST",
		path: `${basePath}${WEBHOOK_PATH}`,
		scope: "ingest",
		handle: async ({ request, response }) => {
			if (!isJson(request.headers["content-type"]))
				throw new ServiceError("unsupported_media_type", "The body must be JSON (Content-Type: application/json)");
			const body = await readBody(request, maxBodyBytes);
			await ingest.ingest(format.fromJson(parseJson(body), mayHoldSurrogates(body)));
			sendText(response, 200, SUCCESS);
		},
	};
}

/**
 * Reads a JSON text (RFC 8259). A byte-order mark is ignored.
 *
 * @throws ServiceError `invalid_record` that tells where the text stops being JSON
 */
function parseJson(body: Buffer): JsonValue {
	const start = body.length >= 3 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? 3 : 0;
	if (body.length === start) throw refused([], "missing", "Field required");
	if (!isUtf8(body)) throw refused([0], "json_invalid", "JSON decode error", "not UTF-8");
	const text = body.toString(isAscii(body) ? "latin1" : "utf8", start);
	try {
		return JSON.parse(text);
	} catch {
		// The engine's own message quotes the text, which may hold secrets.
		const { offset, reason } = locateJsonError(text);
		throw refused([offset], "json_invalid", "JSON decode error", reason);
	}
}

function refused(path: readonly number[], type: string, message: string, reason?: string): ServiceError {
	const violation = { path, type, message, context: reason === undefined ? undefined : { error: reason } };
	return new ServiceError("invalid_record", message, { violations: [violation] });
}

/** Valid UTF-8 has no surrogates, so a lone one can only come from an escape. */
function mayHoldSurrogates(body: Buffer): boolean {
	return body.includes("\\ud") || body.includes("\\uD");
}
