import { isMessage } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { deriveOnce } from "../../protobuf/derive-once.ts";
import { aliasInUse, armOf } from "../plan/place.ts";
import type { FieldPlan, MessagePlan, PlainPlan, UnionPlan, ValuePlan } from "../plan/plan.ts";
import { toStruct, toValue } from "./free-form.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, setMember } from "./json-value.ts";
import { toPointer } from "./pointer.ts";
import { parseDateTime, parseUuid } from "./scalars.ts";

/** A generated message under construction: its type name and its fields by property. */
type MessageFields = { readonly $typeName: string; [property: string]: unknown };

/**
 * Converts a record's JSON form to its message.
 *
 * @param bigints whether the JSON can contain bigints
 */
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

	/** Returns the decoder of a field. It applies aliases and the default. */
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
