import { isMessage, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { toValue } from "../../src/record/json/json-form.ts";
import { isJsonObject, toPointer } from "../../src/record/json/json-value.ts";
import { parseDateTime } from "../../src/record/json/scalars.ts";
import type { FieldPlan, MessagePlan, PlainPlan, ValuePlan } from "../../src/record/plan.ts";

/** Thrown for JSON that no message can express, such as text in place of a number. */
export class Inexpressible extends Error {
	override readonly name = "Inexpressible";
}

/** Number that no enum value has. */
const UNKNOWN_ENUM_NUMBER = 9999;

type Path = readonly (string | number)[];

/**
 * Converts a JSON form to a message without checking rules: missing members stay unset, values out of bounds stay as
 * they are, and an unknown kind becomes an empty union. The service's own decoder would refuse these.
 *
 * @throws Inexpressible when protobuf's types cannot express the JSON
 */
export function messageOf(plan: MessagePlan, json: JsonValue): ConversationInfo {
	const unnamed: Record<string, unknown> = {};
	const message = messageFields(plan, json, [], (path, member) => {
		unnamed[toPointer(path)] = toValue(member);
	});
	message.unnamedMembers = unnamed;
	if (!isMessage(message, ConversationInfoSchema)) throw new TypeError("not a ConversationInfo");
	return message;
}

type Keep = (path: Path, json: JsonValue) => void;

function messageFields(plan: MessagePlan, json: JsonValue, path: Path, keep: Keep): Record<string, unknown> {
	const message: Record<string, unknown> = { $typeName: plan.desc.typeName };
	if (plan.form === "union") {
		const tag = isJsonObject(json) ? json[plan.discriminator] : undefined;
		const arm = typeof tag === "string" ? plan.tagged.get(tag) : bareArm(plan.bare, json);
		message[plan.property] =
			arm === undefined ? { case: undefined } : { case: arm.property, value: fieldValue(arm.value, json, path, keep) };
		if (arm === undefined && !isJsonObject(json)) throw new Inexpressible();
		return message;
	}
	if (plan.form === "object") return objectFields(plan, json, path, keep, message);
	if (plan.form === "tuple" && !Array.isArray(json)) throw new Inexpressible();
	const items = Array.isArray(json) && plan.form === "tuple" ? json : [json];
	items.forEach((item, index) => {
		const field = plan.fields[index];
		if (field === undefined) throw new Inexpressible();
		message[field.property] = fieldOf(field, item, path, keep);
	});
	return message;
}

function bareArm(bare: Extract<MessagePlan, { form: "union" }>["bare"], json: JsonValue) {
	if (Array.isArray(json)) return bare.array;
	const type = typeof json;
	return type === "string" || type === "number" || type === "boolean" ? bare[type] : undefined;
}

function objectFields(plan: PlainPlan, json: JsonValue, path: Path, keep: Keep, message: Record<string, unknown>) {
	if (!isJsonObject(json)) throw new Inexpressible();
	for (const field of plan.fields) {
		if (field.shape === "list") message[field.property] = [];
		if (field.shape === "map") message[field.property] = {};
	}
	for (const [name, value] of Object.entries(json)) {
		const field = plan.members.get(name);
		if (name === plan.discriminator?.name) continue;
		if (field === undefined) {
			if (plan.closed) throw new Inexpressible();
			keep([...path, name], value);
		} else if (value === null && field.nullable) message[field.property] = emptyValue(field);
		else message[field.property] = fieldOf(field, value, [...path, field.name], keep);
	}
	return message;
}

function emptyValue(field: FieldPlan): unknown {
	return { single: undefined, list: [], map: {} }[field.shape];
}

function fieldOf(field: FieldPlan, json: JsonValue, path: Path, keep: Keep): unknown {
	if (field.shape === "single") return fieldValue(field.value, json, path, keep);
	if (field.shape === "list") {
		if (!Array.isArray(json)) throw new Inexpressible();
		return json.map((item, index) => fieldValue(field.value, item, [...path, index], keep));
	}
	const entries = Object.entries(jsonObject(json));
	return Object.fromEntries(entries.map(([key, item]) => [key, fieldValue(field.value, item, [...path, key], keep)]));
}

function jsonObject(json: JsonValue): JsonObject {
	if (!isJsonObject(json)) throw new Inexpressible();
	return json;
}

function fieldValue(plan: ValuePlan, json: JsonValue, path: Path, keep: Keep): unknown {
	switch (plan.type) {
		case "string":
			if (typeof json !== "string" || !json.isWellFormed()) throw new Inexpressible();
			return json;
		case "integer":
			if (!Number.isInteger(json) || Math.abs(Number(json)) >= 2 ** 63) throw new Inexpressible();
			return BigInt(Number(json));
		case "number":
		case "boolean":
			if (typeof json !== plan.type) throw new Inexpressible();
			return json;
		case "enum":
			if (typeof json !== "string") throw new Inexpressible();
			return plan.enum.byName.get(json) ?? UNKNOWN_ENUM_NUMBER;
		case "timestamp": {
			const time = typeof json === "string" ? parseDateTime(json) : undefined;
			if (time === undefined) throw new Inexpressible();
			return time;
		}
		case "struct":
			return jsonObject(json);
		case "value":
			return toValue(json);
		case "message":
			return messageFields(plan.message, json, path, keep);
	}
}
