import {
	type DescMessage,
	fromBinary,
	fromJson,
	type JsonObject,
	type JsonValue,
	toBinary,
	toJsonString,
} from "@bufbuild/protobuf";
import { ServiceError } from "../../errors.ts";
import { readExactJson, readUniqueJson } from "../../record/json/exact-json.ts";
import { type ExactJson, setMember } from "../../record/json/json-value.ts";
import { unreadableRequest } from "../../rpc/rpc-method.ts";
import { type BodyRequest, type ReserveBytes, readBody, unpack } from "../http/body.ts";
import { PREFIX_BYTES } from "../stream-messages.ts";

/** How a request carries its message. */
interface MessageForm {
	readonly input: DescMessage;
	readonly json: boolean;
	/** Whether a prefix stands before the message: in streams of Connect, and in gRPC-Web. */
	readonly prefixed: boolean;
	/** Whether a message whose prefix has the flag for compression is compressed by gzip. */
	readonly gzip: boolean;
	/** Maximum number of bytes of the message, after decompression. */
	readonly maxBytes: number;
}

/**
 * Reads the only message of a request, and returns it in binary.
 *
 * The Connect library never sees what a client sent: its errors quote the request, which may hold secrets, and
 * `JSON.parse` alters some names and numbers.
 *
 * @throws ServiceError `too_large`, `invalid_argument` for another body than one message, or the error of `reserve`
 * @throws DOMException as {@link readBody} does
 */
export async function readMessage(request: BodyRequest, form: MessageForm, reserve: ReserveBytes): Promise<Uint8Array> {
	const { input, json, maxBytes } = form;
	let message: Uint8Array;
	try {
		message = await readBytes(request, form, reserve);
	} catch (error) {
		const kind = error instanceof ServiceError ? error.kind : undefined;
		if (kind === "too_large") throw new ServiceError("too_large", `The request is larger than ${maxBytes} bytes`);
		throw kind === "invalid_argument" ? unreadableRequest(input, error) : error;
	}
	return json ? jsonToBinary(input, message) : message;
}

async function readBytes(request: BodyRequest, form: MessageForm, reserve: ReserveBytes): Promise<Uint8Array> {
	const { input, prefixed, gzip, maxBytes } = form;
	if (!prefixed) return await readBody(request, maxBytes, reserve);
	const body = await readBody(request, PREFIX_BYTES + maxBytes, reserve);
	const message = body.subarray(PREFIX_BYTES);
	if (body.length < PREFIX_BYTES || body.readUInt32BE(1) !== message.length) throw unreadableRequest(input);
	if (body[0] === 0) return message;
	// Other flags mark the end of a stream.
	if (body[0] !== 1 || !gzip) throw unreadableRequest(input);
	return message.length === 0 ? message : await unpack(message, maxBytes, reserve);
}

/** Returns an encoded message as ProtoJSON in UTF-8. */
export function jsonOf(output: DescMessage, encoded: Uint8Array): Uint8Array {
	return Buffer.from(toJsonString(output, fromBinary(output, encoded)));
}

/**
 * Returns the binary form of a message in ProtoJSON (https://protobuf.dev/programming-guides/json/). Unknown members are
 * refused, and so are numbers that a double would round.
 *
 * @throws ServiceError `invalid_argument` that names the place which is not valid
 */
export function jsonToBinary(input: DescMessage, bytes: Uint8Array): Uint8Array {
	try {
		const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
		return toBinary(input, fromJson(input, doubles(readUniqueJson(text))));
	} catch (cause) {
		// The rest of the library's message quotes the value, or the name of the unknown member.
		const [, place] =
			/^cannot decode ((?:field|message|enum) [\w.]+) from JSON/.exec(cause instanceof Error ? cause.message : "") ??
			[];
		throw unreadableRequest(input, cause, place);
	}
}

/**
 * Returns JSON whose numbers are doubles.
 *
 * @throws TypeError when a number is an integer that a double would round, or beyond the range of a double, or when a
 *   string has a lone surrogate, which protobuf strings cannot hold
 */
function doubles(json: ExactJson): JsonValue {
	switch (typeof json) {
		case "string":
			return wellFormed(json);
		case "bigint":
			return exactDouble(json);
		case "number":
			if (!Number.isFinite(json)) throw new TypeError("a number is beyond the range of a double");
			return json;
		case "boolean":
			return json;
	}
	if (json === null) return null;
	if (Array.isArray(json)) return json.map(doubles);
	const members: JsonObject = {};
	for (const [name, value] of Object.entries(json)) setMember(members, wellFormed(name), doubles(value));
	return members;
}

function wellFormed(text: string): string {
	if (!text.isWellFormed()) throw new TypeError("a string has a lone surrogate");
	return text;
}

/**
 * Returns the double that equals an integer, or whose shortest decimal form does, because clients write doubles in that
 * form (1e23).
 *
 * @throws TypeError when there is no such double
 */
function exactDouble(integer: bigint): number {
	const value = Number(integer);
	if (BigInt(value) !== integer && readExactJson(String(value)) !== integer)
		throw new TypeError("a double cannot represent the number exactly");
	return value;
}
