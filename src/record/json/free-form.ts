import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { NullValue, type Value } from "@bufbuild/protobuf/wkt";
import { type ExactJson, isJsonObject, setMember } from "./json-value.ts";

/** Free-form JSON: google.protobuf.Value and Struct, whose numbers are doubles. */

/** Converts JSON to a google.protobuf.Value. An integer beyond 2^53 becomes the nearest double. */
export function toValue(json: ExactJson): Value {
	return { $typeName: "google.protobuf.Value", kind: toKind(json) };
}

function toKind(json: ExactJson): Value["kind"] {
	if (typeof json === "string") return { case: "stringValue", value: json };
	if (typeof json === "number" || typeof json === "bigint") return { case: "numberValue", value: Number(json) };
	if (typeof json === "boolean") return { case: "boolValue", value: json };
	if (json === null) return { case: "nullValue", value: NullValue.NULL_VALUE };
	if (Array.isArray(json))
		return { case: "listValue", value: { $typeName: "google.protobuf.ListValue", values: json.map(toValue) } };
	const fields: Record<string, Value> = {};
	for (const [name, member] of Object.entries(json)) setMember(fields, name, toValue(member));
	return { case: "structValue", value: { $typeName: "google.protobuf.Struct", fields } };
}

/** Converts a google.protobuf.Value to JSON. A value whose kind is not set becomes null. */
export function fromValue(value: Value): JsonValue {
	switch (value.kind.case) {
		case "stringValue":
		case "numberValue":
		case "boolValue":
			return value.kind.value;
		case "structValue": {
			const object: JsonObject = {};
			for (const [name, member] of Object.entries(value.kind.value.fields)) setMember(object, name, fromValue(member));
			return object;
		}
		case "listValue":
			return value.kind.value.values.map(fromValue);
		default:
			return null;
	}
}

/** Returns the JSON object that a Struct field holds. An integer beyond 2^53 becomes the nearest double. */
export function toStruct(json: ExactJson): JsonObject {
	const object: JsonObject = {};
	if (isJsonObject(json)) for (const name of Object.keys(json)) setMember(object, name, toDoubles(json[name] ?? null));
	return object;
}

function toDoubles(json: ExactJson): JsonValue {
	if (typeof json === "bigint") return Number(json);
	if (typeof json !== "object" || json === null) return json;
	return Array.isArray(json) ? json.map(toDoubles) : toStruct(json);
}
