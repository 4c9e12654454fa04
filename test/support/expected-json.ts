import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isJsonObject } from "../../src/record/json/json-value.ts";
import type { FieldPlan, MessagePlan, PlainPlan, UnionPlan, ValuePlan } from "../../src/record/plan.ts";

/**
 * Returns the form in which an accepted record must be read back: with defaults for absent members, UUIDs in lower case
 * with dashes, date-times in UTC, no aliases, and no passwords of URLs in names. It is written from the rules of the field options, independently of
 * the code under test.
 */
export function expectedJson(plan: MessagePlan, json: JsonValue): JsonValue {
	const redacted = withRedactedNames(json);
	return plan.form === "union" ? expectedUnion(plan, redacted) : expectedPlain(plan, redacted);
}

function withRedactedNames(json: JsonValue): JsonValue {
	if (Array.isArray(json)) return json.map(withRedactedNames);
	if (!isJsonObject(json)) return json;
	return Object.fromEntries(
		Object.entries(json).map(([name, member]) => [
			name.replaceAll(/(:\/\/)[^/\s@]+:[^/\s@]+@/g, "$1**********@"),
			withRedactedNames(member),
		]),
	);
}

function expectedPlain(plan: PlainPlan, json: JsonValue): JsonValue {
	const [first] = plan.fields;
	if (plan.form === "bare") return first === undefined ? json : expectedField(first, json);
	if (plan.form === "tuple") return json;
	if (!isJsonObject(json)) return json;
	const members = new Map(Object.entries(json));
	for (const field of plan.fields) {
		const name = [field.name, ...field.aliases].find((candidate) => Object.hasOwn(json, candidate));
		const given = name === undefined ? absentValue(field) : json[name];
		if (name !== undefined) members.delete(name);
		if (given === null && field.omitNull) continue;
		if (given !== undefined) members.set(field.name, given === null ? emptyValue(field) : expectedField(field, given));
	}
	return Object.fromEntries(members);
}

/** Returns the value of an absent member. Undefined if it stays absent. */
function absentValue(field: FieldPlan): JsonValue | undefined {
	if (field.default !== undefined) return field.default;
	return field.shape !== "single" || field.nullable ? emptyValue(field) : undefined;
}

/** Returns the empty value: null, or an empty list or map, because protobuf cannot store null for these. */
function emptyValue(field: FieldPlan): JsonValue {
	return { single: null, list: [], map: {} }[field.shape];
}

function expectedField(field: FieldPlan, json: JsonValue): JsonValue {
	if (field.shape === "list") return Array.isArray(json) ? json.map((item) => filledValue(field.value, item)) : json;
	if (field.shape === "single") return filledValue(field.value, json);
	if (!isJsonObject(json)) return json;
	return Object.fromEntries(Object.entries(json).map(([key, item]) => [key, filledValue(field.value, item)]));
}

function filledValue(plan: ValuePlan, json: JsonValue): JsonValue {
	if (plan.type === "message") return expectedJson(plan.message, json);
	if (typeof json !== "string") return json;
	if (plan.type === "string" && plan.uuid) return uuid(json);
	return plan.type === "timestamp" ? dateTime(json) : json;
}

function expectedUnion(plan: UnionPlan, json: JsonValue): JsonValue {
	if (Array.isArray(json)) return plan.bare.array === undefined ? json : filledValue(plan.bare.array.value, json);
	if (!isJsonObject(json)) return json;
	const kind = Object.hasOwn(json, plan.discriminator) ? json[plan.discriminator] : undefined;
	const arm = typeof kind === "string" ? plan.tagged.get(kind) : undefined;
	if (arm?.tag === undefined) return json;
	const inside: JsonObject = { ...json, [plan.discriminator]: arm.tag };
	return filledValue(arm.value, inside);
}

function uuid(text: string): string {
	const digits = text
		.toLowerCase()
		.replace("urn:uuid:", "")
		.replaceAll(/[^0-9a-f]/g, "");
	return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function dateTime(text: string): string {
	const [, fraction = ""] = /[.,](\d+)/.exec(text) ?? [];
	const zone = /(?:[Zz]|[+-]\d\d:?\d\d)$/.exec(text)?.[0] ?? "Z";
	const minutes = zone.toUpperCase() === "Z" ? "Z" : zone.replace(/(\d\d):?(\d\d)$/, "$1:$2");
	const [local = ""] = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d(?::\d\d)?/.exec(text) ?? [];
	const whole = new Date(`${local.toUpperCase()}${minutes}`).toISOString().slice(0, 19);
	const micros = fraction.slice(0, 6).padEnd(6, "0");
	return micros === "000000" ? `${whole}Z` : `${whole}.${micros}Z`;
}
