import {
	type DescEnum,
	type DescField,
	type DescMessage,
	fromJson,
	type JsonObject,
	type JsonValue,
	type Message,
	ScalarType,
	toBinary,
} from "@bufbuild/protobuf";
import { readExactJson, readUniqueJson } from "../../record/json/exact-json.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, setMember } from "../../record/json/json-value.ts";
import { unreadableRequest } from "../../rpc/rpc-method.ts";

/** Integer types with values that a double cannot hold. ProtoJSON also accepts their values as strings. */
const INTEGERS_OF_64_BITS: ReadonlySet<ScalarType | undefined> = new Set([
	ScalarType.INT64,
	ScalarType.UINT64,
	ScalarType.SINT64,
	ScalarType.FIXED64,
	ScalarType.SFIXED64,
]);

/** Maximum size in bytes of a request in which the invalid field is searched. The search reads each level again. */
const MAX_SEARCHED_BYTES = 2 ** 20;

/**
 * Returns the binary form of a message that a client sent in ProtoJSON (https://protobuf.dev/programming-guides/json/).
 *
 * This function is stricter than the library where the library would change what the client meant. It refuses unknown
 * names of enum values and unknown fields of a filter, which the library leaves out, and numbers that it would round.
 * Other unknown fields are ignored.
 *
 * @param bytes JSON text in UTF-8
 * @throws ServiceError `invalid_argument` when the bytes are not JSON, or not the JSON form of the message; it names
 *   the field whose value is not valid
 */
export function encodeJsonMessage(input: DescMessage, bytes: Uint8Array): Uint8Array {
	let json: ExactJson = null;
	try {
		const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
		json = readUniqueJson(text);
		return toBinary(input, readMessage(input, json));
	} catch (cause) {
		throw unreadableRequest(
			input,
			cause,
			bytes.byteLength > MAX_SEARCHED_BYTES ? undefined : invalidField(input, json),
		);
	}
}

/** @throws Error when the JSON is not the JSON form of the message */
function readMessage(input: DescMessage, json: ExactJson): Message {
	requireKnownFilter(input, json);
	return fromJson(input, messageJson(input, json));
}

/** Returns the path of the first field whose value is not valid. Undefined when each value by itself is valid. */
function invalidField(input: DescMessage, json: ExactJson): string | undefined {
	if (!isJsonObject(json)) return undefined;
	for (const { fieldKind, jsonName, name, message } of input.fields)
		for (const member of [jsonName, name]) {
			const value = Object.hasOwn(json, member) ? json[member] : undefined;
			if (value === undefined || isMessage(input, { [member]: value })) continue;
			const inner = fieldKind === "message" ? invalidField(message, value) : undefined;
			return inner === undefined ? member : `${member}.${inner}`;
		}
	return undefined;
}

/** Whether a JSON value is the JSON form of a message. */
function isMessage(input: DescMessage, json: ExactJson): boolean {
	try {
		readMessage(input, json);
		return true;
	} catch {
		return false;
	}
}

/** Returns the JSON of a message for the library: only members that are fields, and 64-bit integers as strings. */
function messageJson({ typeName, fields }: DescMessage, json: ExactJson): JsonValue {
	// The well-known types of protobuf, such as Value, have a JSON form of their own.
	if (!isJsonObject(json) || typeName.startsWith("google.protobuf.")) return plainJson(json);
	const members: JsonObject = {};
	for (const field of fields)
		for (const name of new Set([field.jsonName, field.name])) {
			const value = Object.hasOwn(json, name) ? json[name] : undefined;
			if (value !== undefined) members[name] = fieldJson(field, value);
		}
	return members;
}

function fieldJson(field: DescField, json: ExactJson): JsonValue {
	if (field.fieldKind === "list" && Array.isArray(json)) return json.map((item) => valueJson(field, item));
	if (field.fieldKind === "map" && isJsonObject(json)) return mapMembers(json, (value) => valueJson(field, value));
	return valueJson(field, json);
}

/** Returns the JSON of a field's value, or of an element of a list or map, for the library. */
function valueJson(field: DescField, json: ExactJson): JsonValue {
	if (field.message !== undefined) return messageJson(field.message, json);
	if (field.enum !== undefined) requireKnownName(field.enum, json);
	return typeof json === "bigint" && INTEGERS_OF_64_BITS.has(field.scalar) ? String(json) : plainJson(json);
}

/**
 * Returns JSON whose numbers are doubles.
 *
 * @throws TypeError when a number is an integer that a double would round, or beyond the range of a double, or when a
 *   string has a lone surrogate
 */
function plainJson(json: ExactJson): JsonValue {
	if (typeof json === "string") return wellFormed(json);
	if (typeof json === "bigint") return exactDouble(json);
	if (json === Number.POSITIVE_INFINITY || json === Number.NEGATIVE_INFINITY)
		throw new TypeError("a number is beyond the range of a double");
	if (Array.isArray(json)) return json.map(plainJson);
	return isJsonObject(json) ? mapMembers(json, plainJson) : json;
}

function mapMembers(json: ExactJsonObject, map: (value: ExactJson) => JsonValue): JsonObject {
	const members: JsonObject = {};
	for (const [name, value] of Object.entries(json)) setMember(members, wellFormed(name), map(value));
	return members;
}

/** @throws TypeError when a text has a lone surrogate, which protobuf strings cannot hold */
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

/**
 * @throws TypeError when the JSON is a name that the enum does not have. The library would leave the field out, and a
 *   filter by it would list everything
 */
function requireKnownName({ typeName, values }: DescEnum, json: ExactJson): void {
	if (typeof json === "string" && !values.some(({ name }) => name === json))
		throw new TypeError(`${typeName} has no such value`);
}

/** @throws TypeError when the filter of a request has an unknown field: without it the filter would list too much */
function requireKnownFilter({ fields }: DescMessage, json: ExactJson): void {
	const filter = fields.find(({ name }) => name === "filter")?.message;
	const members = isJsonObject(json) ? json.filter : undefined;
	if (filter === undefined || !isJsonObject(members)) return;
	const names = new Set(filter.fields.flatMap(({ jsonName, name }) => [jsonName, name]));
	if (!Object.keys(members).every((name) => names.has(name)))
		throw new TypeError(`${filter.typeName} has no such field`);
}
