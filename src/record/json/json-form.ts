import { isMessage, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence, NullValue, TimestampSchema, type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import {
	aliasInUse,
	armOf,
	type FieldPlan,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "../plan.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	type Fields,
	isFields,
	isJsonObject,
	setMember,
	toPointer,
} from "./json-value.ts";
import { formatDateTime, parseDateTime, parseUuid } from "./scalars.ts";

/** Derives a function for a type once, also if the type contains itself. `derive` must not call those that it gets. */
function deriveOnce<Key, Arguments extends readonly unknown[], Result>(
	known: Map<Key, (...args: Arguments) => Result>,
	key: Key,
	derive: () => (...args: Arguments) => Result,
): (...args: Arguments) => Result {
	const before = known.get(key);
	if (before !== undefined) return before;
	let complete: ((...args: Arguments) => Result) | undefined;
	known.set(key, (...args) => {
		if (complete === undefined) throw new TypeError("a function was called while it was being derived");
		return complete(...args);
	});
	complete = derive();
	known.set(key, complete);
	return complete;
}

type Encode = (value: unknown) => ExactJson;

/**
 * Derives the conversion of a message to its JSON form, the reverse of {@link deriveDecoder}. A value that breaks a rule (an enum
 * number without a name, a union with no arm) is written in a form that the schema refuses, so that the schema can also
 * validate messages.
 */
export function deriveEncoder(plan: MessagePlan): (message: Fields) => ExactJson {
	return new EncoderBuilder().message(plan);
}

class EncoderBuilder {
	readonly #encoders = new Map<MessagePlan, Encode>();

	message(plan: MessagePlan): Encode {
		return deriveOnce(this.#encoders, plan, () => {
			switch (plan.form) {
				case "union":
					return this.#union(plan);
				case "tuple":
					return this.#tuple(plan);
				case "bare":
					return this.#bare(plan);
				case "object":
					return this.#object(plan);
			}
		});
	}

	#object(plan: PlainPlan): Encode {
		const fields = plan.fields.map((field) => ({
			name: field.name,
			property: field.property,
			encode: this.#collection(field),
			unset: unsetValue(field),
			isNull: field.nullable && !field.omitNull,
		}));
		return (message) => {
			const json: ExactJsonObject = {};
			if (!isFields(message)) return json;
			for (const { name, property, encode, unset, isNull } of fields) {
				const value = message[property];
				if (value !== undefined && value !== unset) json[name] = encode(value);
				else if (isNull) json[name] = null;
			}
			return json;
		};
	}

	#bare(plan: PlainPlan): Encode {
		const [field] = plan.fields;
		if (field === undefined) throw new Error(`${plan.desc.typeName} has no field`);
		const encode = this.#collection(field);
		return (message) => (isFields(message) ? encode(message[field.property]) : null);
	}

	#tuple(plan: PlainPlan): Encode {
		const fields = plan.fields.map(({ property, value }) => ({ property, encode: this.#value(value) }));
		return (message) => {
			const items: ExactJson[] = [];
			// An unset item ends the tuple, so that the schema reports it as missing.
			for (const { property, encode } of fields) {
				const value = isFields(message) ? message[property] : undefined;
				if (value === undefined) break;
				items.push(encode(value));
			}
			return items;
		};
	}

	#union(plan: UnionPlan): Encode {
		const arms = new Map([...plan.arms].map(([property, arm]) => [property, { arm, encode: this.#value(arm.value) }]));
		return (message) => {
			const oneof = isFields(message) ? message[plan.property] : undefined;
			const selected = isFields(oneof) && typeof oneof.case === "string" ? arms.get(oneof.case) : undefined;
			if (selected === undefined || !isFields(oneof)) return {};
			const json = selected.encode(oneof.value);
			if (selected.arm.tag !== undefined && isJsonObject(json)) json[plan.discriminator] = selected.arm.tag;
			return json;
		};
	}

	#collection(field: FieldPlan): Encode {
		const encode = this.#value(field.value);
		switch (field.shape) {
			case "single":
				return encode;
			case "list":
				return (items) => (Array.isArray(items) ? items.map((item) => encode(item)) : []);
			case "map":
				return (entries) => {
					const json: ExactJsonObject = {};
					if (isFields(entries))
						for (const [key, value] of Object.entries(entries)) setMember(json, key, encode(value));
					return json;
				};
		}
	}

	#value(plan: ValuePlan): Encode {
		switch (plan.type) {
			case "string":
			case "number":
			case "boolean":
			case "struct":
				return plainJson;
			case "integer":
				return integer;
			case "enum":
				return (value) => (typeof value === "number" ? (plan.enum.byNumber.get(value) ?? value) : null);
			case "timestamp":
				return (value) => (isMessage(value, TimestampSchema) ? formatDateTime(value) : null);
			case "value":
				return (value) => (isMessage(value, ValueSchema) ? fromValue(value) : null);
			case "message":
				return this.message(plan.message);
		}
	}
}

/** Returns the value of a field that means the same as an unset field. */
function unsetValue({ value, shape, nullable, desc }: FieldPlan): number | string | undefined {
	// An enum's zero value has no JSON name.
	if (value.type === "enum" && shape === "single") return 0;
	// A field without presence cannot be unset.
	return nullable && value.type === "string" && desc.presence === FeatureSet_FieldPresence.IMPLICIT ? "" : undefined;
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

/** Converts a record's JSON form to its message. `bigints`: whether the JSON can contain bigints. */
export type RecordDecoder = (json: ExactJson, bigints: boolean) => ConversationInfo;

/** Current position in the record. JSON Pointers are only made for the few members that need one. */
interface Position {
	readonly path: (string | number)[];
	/** Unnamed members found so far, by their JSON Pointers (RFC 6901) from the record's root. */
	readonly unnamed: Record<string, Value>;
	/** Whether free-form JSON can contain bigints, which become doubles. Otherwise a Struct is not copied. */
	readonly bigints: boolean;
}

type Decode = (json: ExactJson, at: Position) => unknown;
/** Returns a field's value. `member` is the member of the field's own name in the object `json`, if present. */
type DecodeField = (member: ExactJson | undefined, json: ExactJsonObject, at: Position) => unknown;

/**
 * Derives the conversion of a record's JSON form, which the schema must have accepted, to its message. An absent member
 * gets its default, null leaves a field unset, and a UUID becomes lower-case with dashes. Members that no field names
 * are kept in `unnamed_members`.
 */
export function deriveDecoder(plan: MessagePlan): RecordDecoder {
	const decode = new DecoderBuilder().message(plan);
	return (json, bigints) => {
		const unnamed: Record<string, Value> = {};
		const message = decode(json, { path: [], unnamed, bigints });
		if (!isMessage(message, ConversationInfoSchema)) throw new TypeError("the decoder made no ConversationInfo");
		message.unnamedMembers = unnamed;
		return message;
	};
}

class DecoderBuilder {
	readonly #decoders = new Map<MessagePlan, Decode>();

	message(plan: MessagePlan): Decode {
		return deriveOnce(this.#decoders, plan, () => {
			switch (plan.form) {
				case "union":
					return this.#union(plan);
				case "tuple":
					return this.#tuple(plan);
				case "bare":
					return this.#bare(plan);
				case "object":
					return this.#object(plan);
			}
		});
	}

	#object(plan: PlainPlan): Decode {
		const fields = plan.fields.map((field) => ({ ...field, decode: this.#field(field) }));
		return (json, at) => {
			if (!isJsonObject(json)) return undefined;
			const message: MessageFields = { $typeName: plan.desc.typeName };
			for (const { property, name, decode } of fields) message[property] = decode(json[name], json, at);
			keepUnnamed(plan, json, at);
			return message;
		};
	}

	#field(field: FieldPlan): DecodeField {
		const { name, aliases, shape, default: preset } = field;
		const decode = this.#collection(field);
		// Only a message can contain unnamed members, whose pointers need the path.
		const needsPath = field.value.type === "message";
		return (member, json, at) => {
			let value = member;
			if (aliases.length > 0 && (value === undefined || value === null)) {
				const alias = aliasInUse(json, aliases);
				if (alias !== undefined) value = json[alias];
			}
			if (value === undefined) value = preset;
			if (value === undefined || value === null) return shape === "list" ? [] : shape === "map" ? {} : undefined;
			if (!needsPath) return decode(value, at);
			at.path.push(name);
			const decoded = decode(value, at);
			at.path.pop();
			return decoded;
		};
	}

	#bare(plan: PlainPlan): Decode {
		const [field] = plan.fields;
		if (field === undefined) throw new Error(`${plan.desc.typeName} has no field`);
		const decode = this.#collection(field);
		return (json, at) => ({ $typeName: plan.desc.typeName, [field.property]: decode(json, at) });
	}

	#tuple(plan: PlainPlan): Decode {
		const items = plan.fields.map(({ property, value }) => ({ property, decode: this.#value(value) }));
		return (json, at) => {
			const message: MessageFields = { $typeName: plan.desc.typeName };
			if (Array.isArray(json))
				for (const [index, { property, decode }] of items.entries())
					message[property] = decode(json[index] ?? null, at);
			return message;
		};
	}

	#union(plan: UnionPlan): Decode {
		const decoders = new Map([...plan.arms.values()].map((arm) => [arm, this.#value(arm.value)]));
		return (json, at) => {
			const arm = armOf(plan, json);
			return {
				$typeName: plan.desc.typeName,
				[plan.property]:
					arm === undefined ? { case: undefined } : { case: arm.property, value: decoders.get(arm)?.(json, at) },
			};
		};
	}

	#collection(field: FieldPlan): Decode {
		const decode = this.#value(field.value);
		const item = (token: string | number, json: ExactJson, at: Position): unknown => {
			at.path.push(token);
			const value = decode(json, at);
			at.path.pop();
			return value;
		};
		switch (field.shape) {
			case "single":
				return decode;
			case "list":
				return (json, at) => (Array.isArray(json) ? json.map((value, index) => item(index, value, at)) : []);
			case "map":
				return (json, at) => {
					const entries: Record<string, unknown> = {};
					if (isJsonObject(json))
						for (const [key, value] of Object.entries(json)) setMember(entries, key, item(key, value, at));
					return entries;
				};
		}
	}

	#value(plan: ValuePlan): Decode {
		switch (plan.type) {
			case "string":
				return plan.uuid ? (json) => parseUuid(String(json)) : (json) => json;
			case "integer":
				if (plan.bits === 32) return Number;
				return (json) => (typeof json === "bigint" ? json : BigInt(Number(json)));
			case "number":
				return Number;
			case "boolean":
				return (json) => json;
			case "enum":
				return (json) => plan.enum.byName.get(String(json));
			case "timestamp":
				return (json) => parseDateTime(String(json));
			case "struct":
				return (json, at) => (at.bigints ? toStruct(json) : json);
			case "value":
				return toValue;
			case "message":
				return this.message(plan.message);
		}
	}
}

function keepUnnamed(plan: PlainPlan, json: ExactJsonObject, at: Position): void {
	// Object.keys instead of for...in: V8 drops its cache for for...in at each garbage collection of the whole heap.
	for (const name of Object.keys(json)) {
		const field = plan.members.get(name);
		if (field === undefined ? name === plan.discriminator?.name : isInUse(field, json, name)) continue;
		at.path.push(name);
		at.unnamed[toPointer(at.path)] = toValue(json[name] ?? null);
		at.path.pop();
	}
}

/** Whether a field takes its value from the member `name`. */
function isInUse(field: FieldPlan, json: ExactJsonObject, name: string): boolean {
	return field.name === name || ((json[field.name] ?? null) === null && aliasInUse(json, field.aliases) === name);
}
