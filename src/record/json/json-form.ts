import { isMessage, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { NullValue, TimestampSchema, type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { compile } from "../compile.ts";
import {
	aliasInUse,
	armOf,
	type FieldPlan,
	type MessagePlan,
	onlyField,
	type PlainPlan,
	type ValuePlan,
} from "../plan.ts";
import { type ExactJson, type ExactJsonObject, isFields, isJsonObject, setMember, toPointer } from "./json-value.ts";
import { formatDateTime, parseDateTime, parseUuid } from "./scalars.ts";

/**
 * Converts a message to its JSON form, the reverse of {@link messageOf}. A value that breaks a rule (an enum number
 * without a name, a union with no arm) is written in a form that the schema refuses, so that the schema can also validate
 * messages.
 */
export function jsonFormOf(plan: MessagePlan, message: unknown): ExactJson {
	if (!isFields(message)) return {};
	switch (plan.form) {
		case "union": {
			const oneof = message[plan.property];
			const arm = isFields(oneof) && typeof oneof.case === "string" ? plan.arms.get(oneof.case) : undefined;
			if (arm === undefined || !isFields(oneof)) return {};
			const json = encodeValue(arm.value, oneof.value);
			if (arm.tag !== undefined && isJsonObject(json)) json[plan.discriminator] = arm.tag;
			return json;
		}
		case "tuple": {
			const items: ExactJson[] = [];
			// An unset item ends the tuple, so that the schema reports it as missing.
			for (const { property, value } of plan.fields) {
				const item = message[property];
				if (item === undefined) break;
				items.push(encodeValue(value, item));
			}
			return items;
		}
		case "bare": {
			const field = onlyField(plan);
			return encodeField(field, message[field.property]);
		}
		case "object": {
			const json: ExactJsonObject = {};
			for (const field of plan.fields) {
				const value = message[field.property];
				if (value !== undefined && value !== field.unset) json[field.name] = encodeField(field, value);
				else if (field.nullable && !field.omitNull) json[field.name] = null;
			}
			return json;
		}
	}
}

function encodeField({ shape, value: plan }: FieldPlan, value: unknown): ExactJson {
	if (shape === "single") return encodeValue(plan, value);
	if (shape === "list") return Array.isArray(value) ? value.map((item) => encodeValue(plan, item)) : [];
	const json: ExactJsonObject = {};
	if (isFields(value)) for (const [key, item] of Object.entries(value)) setMember(json, key, encodeValue(plan, item));
	return json;
}

function encodeValue(plan: ValuePlan, value: unknown): ExactJson {
	switch (plan.type) {
		case "string":
		case "number":
		case "boolean":
		case "struct":
			return plainJson(value);
		case "integer":
			return integer(value);
		case "enum":
			return typeof value === "number" ? (plan.enum.byNumber.get(value) ?? value) : null;
		case "timestamp":
			return isMessage(value, TimestampSchema) ? formatDateTime(value) : null;
		case "value":
			return isMessage(value, ValueSchema) ? fromValue(value) : null;
		case "message":
			return jsonFormOf(plan.message, value);
	}
}

/** Returns an integer within 2^53 as a number, and a larger one as a bigint. */
function integer(value: unknown): ExactJson {
	if (typeof value === "number") return value;
	if (typeof value !== "bigint") return null;
	const number = Number(value);
	return Number.isSafeInteger(number) ? number : value;
}

function plainJson(value: unknown): ExactJson {
	if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value;
	return isJsonObject(value) ? value : null;
}

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
function toStruct(json: ExactJson): JsonObject {
	const object: JsonObject = {};
	if (isJsonObject(json)) for (const name of Object.keys(json)) setMember(object, name, toDoubles(json[name] ?? null));
	return object;
}

function toDoubles(json: ExactJson): JsonValue {
	if (typeof json === "bigint") return Number(json);
	if (typeof json !== "object" || json === null) return json;
	return Array.isArray(json) ? json.map(toDoubles) : toStruct(json);
}

type MessageFields = { readonly $typeName: string; [property: string]: unknown };

/**
 * Converts a record's JSON form, which the schema must have accepted, to its message. An absent member gets its default,
 * null leaves a field unset, and a UUID becomes lower-case with dashes. Members that no field names are kept in
 * `unnamed_members`.
 *
 * @param bigints whether free-form JSON can contain bigints, which become doubles; otherwise a Struct is not copied
 */
export function messageOf(plan: MessagePlan, json: ExactJson, bigints: boolean): ConversationInfo {
	const decoder = new Decoder(bigints);
	const message = decoder.message(plan, json);
	if (!isMessage(message, ConversationInfoSchema)) throw new TypeError("the decoder made no ConversationInfo");
	message.unnamedMembers = decoder.unnamed;
	return message;
}

class Decoder {
	/** Unnamed members found so far, by their JSON Pointers (RFC 6901) from the record's root. */
	readonly unnamed: Record<string, Value> = {};
	/** Current position in the record. Pointers are only made for the few members that need one. */
	readonly #path: (string | number)[] = [];
	readonly #bigints: boolean;

	constructor(bigints: boolean) {
		this.#bigints = bigints;
	}

	message(plan: MessagePlan, json: ExactJson): unknown {
		if (plan.form === "object")
			return isJsonObject(json) ? makers.getOrInsertComputed(plan, makerOf)(this, json) : undefined;
		const message: MessageFields = { $typeName: plan.desc.typeName };
		switch (plan.form) {
			case "union": {
				const arm = armOf(plan, json);
				message[plan.property] =
					arm === undefined ? { case: undefined } : { case: arm.property, value: this.#value(arm.value, json) };
				break;
			}
			case "tuple":
				if (Array.isArray(json))
					for (const [index, { property, value }] of plan.fields.entries())
						message[property] = this.#value(value, json[index] ?? null);
				break;
			case "bare": {
				const field = onlyField(plan);
				message[field.property] = this.#collection(field, json);
			}
		}
		return message;
	}

	/** @param member the member of `json` that has the name of the field */
	field(field: FieldPlan, member: ExactJson | undefined, json: ExactJsonObject): unknown {
		const { name, aliases, shape, default: preset, value: plan } = field;
		let value = member;
		if (aliases.length > 0 && (value === undefined || value === null)) {
			const alias = aliasInUse(json, aliases);
			if (alias !== undefined) value = json[alias];
		}
		if (value === undefined) value = preset;
		if (value === undefined || value === null) return shape === "list" ? [] : shape === "map" ? {} : undefined;
		// Only messages have unnamed members.
		if (shape === "single" && plan.type !== "message") return this.#value(plan, value);
		this.#path.push(name);
		const decoded = this.#collection(field, value);
		this.#path.pop();
		return decoded;
	}

	#collection({ shape, value: plan }: FieldPlan, json: ExactJson): unknown {
		if (shape === "single") return this.#value(plan, json);
		if (shape === "list") return Array.isArray(json) ? json.map((item, index) => this.#item(plan, index, item)) : [];
		const entries: Record<string, unknown> = {};
		if (isJsonObject(json))
			for (const [key, item] of Object.entries(json)) setMember(entries, key, this.#item(plan, key, item));
		return entries;
	}

	#item(plan: ValuePlan, token: string | number, json: ExactJson): unknown {
		this.#path.push(token);
		const value = this.#value(plan, json);
		this.#path.pop();
		return value;
	}

	#value(plan: ValuePlan, json: ExactJson): unknown {
		switch (plan.type) {
			case "string":
				return plan.uuid ? parseUuid(String(json)) : json;
			case "integer":
				if (plan.bits === 32) return Number(json);
				return typeof json === "bigint" ? json : BigInt(Number(json));
			case "number":
				return Number(json);
			case "boolean":
				return json;
			case "enum":
				return plan.enum.byName.get(String(json));
			case "timestamp":
				return parseDateTime(String(json));
			case "struct":
				return this.#bigints ? toStruct(json) : json;
			case "value":
				return toValue(json);
			case "message":
				return this.message(plan.message, json);
		}
	}

	keepUnnamed(plan: PlainPlan, json: ExactJsonObject): void {
		// Object.keys instead of for...in: V8 drops its cache for for...in at each garbage collection of the whole heap.
		for (const name of Object.keys(json)) {
			const field = plan.members.get(name);
			if (field === undefined ? name === plan.discriminator?.name : isInUse(field, json, name)) continue;
			this.unnamed[toPointer([...this.#path, name])] = toValue(json[name] ?? null);
		}
	}
}

type Maker = (decoder: Decoder, json: ExactJsonObject) => object;

/** What makes the messages of objects, by their plans. */
const makers = new WeakMap<PlainPlan, Maker>();

/** Compiles what makes the message of an object. It counts the members that fields name: usually there are no others. */
function makerOf(plan: PlainPlan): Maker {
	const { desc, fields, members, discriminator: { name: tag } = {} } = plan;
	const memberAt = (name: string) => `json[${JSON.stringify(name)}]`;
	const named = [...(tag === undefined || members.has(tag) ? [] : [tag]), ...fields.map(({ name }) => name)];
	const properties = fields.map(({ property, name, shape, value }, index) => {
		const member = memberAt(name);
		const decoded = `decoder.field(fields[${index}], ${member}, json)`;
		const [type, taken] = shape === "single" ? shortcutOf(value, member) : [];
		return `${JSON.stringify(property)}: ${type === undefined ? decoded : `typeof ${member} === "${type}" ? ${taken} : ${decoded}`}`;
	});
	// With 0, the sum is a number also for one name or none.
	const sum = ["0", ...named.map((name) => `(${memberAt(name)} !== undefined)`)].join(" + ");
	return compile(
		{ plan, fields },
		`(decoder, json) => {
			const message = { $typeName: ${JSON.stringify(desc.typeName)}, ${properties.join()} };
			if (Object.keys(json).length !== ${sum}) decoder.keepUnnamed(plan, json);
			return message;
		}`,
	);
}

/**
 * Returns the type of JSON values that are converted in compiled code, and the expression that converts one; nothing for plans whose
 * values are all converted by {@link Decoder.field}.
 */
function shortcutOf(plan: ValuePlan, json: string): readonly [type: string, converted: string] | [] {
	switch (plan.type) {
		case "string":
			return plan.uuid ? [] : ["string", json];
		case "integer":
			return ["number", plan.bits === 32 ? json : `BigInt(${json})`];
		case "number":
		case "boolean":
			return [plan.type, json];
		default:
			return [];
	}
}

/** Whether a field takes its value from the member `name`. */
function isInUse(field: FieldPlan, json: ExactJsonObject, name: string): boolean {
	return field.name === name || ((json[field.name] ?? null) === null && aliasInUse(json, field.aliases) === name);
}
