import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isJsonObject } from "../../src/record/json/json-value.ts";
import type { MessagePlan, PlainPlan, ValuePlan } from "../../src/record/plan.ts";

/** Returns the JSON form with the simplest value for each missing required member, at every level. */
export function completed(plan: MessagePlan, json: JsonValue): JsonValue {
	if (plan.form !== "union") return plan.form === "object" ? completedObject(plan, json) : inFields(plan, json);
	if (Array.isArray(json)) return plan.bare.array === undefined ? json : inValue(plan.bare.array.value, json);
	const tag = isJsonObject(json) ? json[plan.discriminator] : undefined;
	const arm = typeof tag === "string" ? plan.tagged.get(tag) : undefined;
	return arm === undefined ? json : inValue(arm.value, json);
}

function completedObject(plan: PlainPlan, json: JsonValue): JsonValue {
	const known = inFields(plan, json);
	const missing = plan.fields.filter(
		(field) => field.required && isJsonObject(known) && !Object.hasOwn(known, field.name),
	);
	const simplest = missing.map((field) => {
		const items = Array.from({ length: field.minItems }, () => simplestOf(field.value));
		return [field.name, field.shape === "list" ? items : simplestOf(field.value)];
	});
	return isJsonObject(known) ? { ...known, ...Object.fromEntries(simplest) } : known;
}

function inFields(plan: PlainPlan, json: JsonValue): JsonValue {
	const [first] = plan.fields;
	if (plan.form === "bare" && first !== undefined) return inShape(first.shape, first.value, json);
	if (!isJsonObject(json)) return json;
	const members = Object.entries(json).map(([name, value]): [string, JsonValue] => {
		const field = plan.members.get(name);
		return [name, field === undefined || value === null ? value : inShape(field.shape, field.value, value)];
	});
	return Object.fromEntries(members);
}

function inShape(shape: "single" | "list" | "map", value: ValuePlan, json: JsonValue): JsonValue {
	if (shape === "list" && Array.isArray(json)) return json.map((item) => inValue(value, item));
	if (shape === "map" && isJsonObject(json))
		return Object.fromEntries(Object.entries(json).map(([key, item]) => [key, inValue(value, item)]));
	return inValue(value, json);
}

function inValue(value: ValuePlan, json: JsonValue): JsonValue {
	return value.type === "message" ? completed(value.message, json) : json;
}

function simplestOf(value: ValuePlan): JsonValue {
	switch (value.type) {
		case "string":
			return value.uuid ? "7c9e6679-7425-40de-944b-e07fc1f90ae7" : "x";
		case "integer":
		case "number":
			return 1;
		case "message":
			return completed(value.message, simplestMessage(value.message));
		default:
			throw new Error(`no required member is of type ${value.type}`);
	}
}

function simplestMessage(plan: MessagePlan): JsonObject {
	const [tag] = plan.form === "union" ? plan.tagged.keys() : [];
	return plan.form === "union" && tag !== undefined ? { [plan.discriminator]: tag } : {};
}
