import { isAscii, isUtf8 } from "node:buffer";
import type { JsonValue } from "@bufbuild/protobuf";
import { ServiceError } from "../../errors.ts";
import { locateJsonError } from "./json-syntax.ts";

/** A JSON text that was read. */
export interface ParsedJson {
	readonly json: JsonValue;
	/** Whether a string in it can hold a lone surrogate: valid UTF-8 has none, so only an escape can stand for one. */
	readonly surrogates: boolean;
}

/**
 * Reads a JSON text (RFC 8259) in UTF-8. A byte-order mark is ignored.
 *
 * @throws ServiceError `invalid_record` that tells where the text stops being JSON
 */
export function parseJson(body: Buffer): ParsedJson {
	const start = body.length >= 3 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? 3 : 0;
	if (body.length === start) throw refused([], "missing", "Field required");
	if (!isUtf8(body)) throw refused([0], "json_invalid", "JSON decode error", "not UTF-8");
	const text = body.toString(isAscii(body) ? "latin1" : "utf8", start);
	try {
		return { json: JSON.parse(text), surrogates: body.includes("\\ud") || body.includes("\\uD") };
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
