import {
	type DescEnum,
	type DescField,
	type DescMessage,
	getOption,
	type JsonValue,
	ScalarType,
} from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import {
	enum_value,
	type FieldRules,
	field as fieldOption,
	JsonType,
	MessageRules_Form,
	message as messageOption,
} from "../../gen/conversations/options/v1/options_pb.js";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf } from "./json/json-value.ts";

/**
 * The plan describes the messages of a record. It is read once from the protobuf descriptors and their options.
 * Validation, the mapping between JSON and protobuf, redaction and OpenAPI all follow it, so that a new field is one
 * line of proto.
 */

/** JSON form of a single value: of a field, a list item or a map value. */
export type ValuePlan =
	| { readonly type: "string"; readonly uuid: boolean }
	| ({ readonly type: "integer"; readonly bits: 32 | 64 } & Bounds)
	| ({ readonly type: "number" } & Bounds)
	| { readonly type: "boolean" }
	| { readonly type: "enum"; readonly enum: EnumPlan }
	| { readonly type: "timestamp" }
	/** google.protobuf.Struct: a free-form JSON object. */
	| { readonly type: "struct" }
	/** google.protobuf.Value: JSON of these types, or any JSON when the list is empty. */
	| { readonly type: "value"; readonly jsonTypes: readonly JsonType[] }
	| { readonly type: "message"; readonly message: MessagePlan };

export interface Bounds {
	readonly gt: number | undefined;
	readonly gte: number | undefined;
}

/**
 * JSON names of an enum's values: those of the option, or else of the .proto file in lower case without the enum's name.
 * The zero value has none, because it means that the field is not set.
 */
export interface EnumPlan {
	readonly desc: DescEnum;
	readonly byName: ReadonlyMap<string, number>;
	readonly byNumber: ReadonlyMap<number, string>;
}

export interface FieldPlan {
	readonly desc: DescField;
	readonly property: string;
	readonly name: string;
	/** Other accepted names, in order of preference. They are used when the member `name` is absent or null. */
	readonly aliases: readonly string[];
	readonly shape: "single" | "list" | "map";
	readonly value: ValuePlan;
	readonly required: boolean;
	readonly nullable: boolean;
	/** Whether an unset nullable field is left out of the JSON form instead of written as null. */
	readonly omitNull: boolean;
	readonly secret: boolean;
	/** Whether a free-form object is a JSON Schema. Its names are those of arguments, so they do not indicate secrets. */
	readonly jsonSchema: boolean;
	readonly default: JsonValue | undefined;
	readonly minItems: number;
	/** The value that means the same as an unset field, if there is one. */
	readonly unset: number | string | undefined;
	readonly keyPattern: RegExp | undefined;
	readonly maxValueLength: number;
}

/** A message whose JSON form is an object, an array of its fields, or its only field. */
export interface PlainPlan {
	readonly form: "object" | "tuple" | "bare";
	readonly desc: DescMessage;
	readonly fields: readonly FieldPlan[];
	/** Fields by name of the JSON member, aliases included. */
	readonly members: ReadonlyMap<string, FieldPlan>;
	readonly closed: boolean;
	/** Whether each string in an unnamed member is a secret. */
	readonly unnamedSecret: boolean;
	readonly exclusions: readonly { readonly field: FieldPlan; readonly excludes: FieldPlan }[];
	/** Member of the JSON object that selects this message in a union; undefined when the message is no arm. */
	discriminator: { readonly name: string; readonly tags: readonly string[] } | undefined;
}

interface ArmPlan {
	readonly property: string;
	readonly value: ValuePlan;
	readonly secret: boolean;
	/** Discriminator value; undefined for an arm that no discriminator selects. */
	readonly tag: string | undefined;
}

type BareArms = Partial<Record<"string" | "number" | "boolean" | "array", ArmPlan>>;

/** A message whose fields, the arms, are all in one oneof. Its JSON form is that of the arm which is set. */
export interface UnionPlan {
	readonly form: "union";
	readonly desc: DescMessage;
	/** Name of the property in the generated message that holds the oneof. */
	readonly property: string;
	readonly discriminator: string;
	/** Arms that a discriminator selects, by its value. Other accepted values are included. */
	readonly tagged: ReadonlyMap<string, ArmPlan>;
	/** Arms that no discriminator selects, by their type in JSON; without the arm `unknown`. */
	readonly bare: Readonly<BareArms>;
	/** The arm that keeps values which no other arm accepts; undefined for a closed union. */
	readonly unknown: ArmPlan | undefined;
	/** JSON types that the arm `unknown` accepts; empty for any. */
	readonly unknownTypes: readonly JsonType[];
	readonly arms: ReadonlyMap<string, ArmPlan>;
}

export type MessagePlan = PlainPlan | UnionPlan;

/**
 * Returns the plan of a message, with the plans of all messages that it contains.
 *
 * @throws Error for a mistake in the .proto files: options that contradict each other, or an unsupported type
 */
export function planMessage(desc: DescMessage): MessagePlan {
	return new Planner().message(desc);
}

/** Returns a plan and the plans of all messages in it, each once. */
export function plansIn(root: MessagePlan): ReadonlySet<MessagePlan> {
	const plans = new Set<MessagePlan>([root]);
	// A set can grow while it is iterated.
	for (const plan of plans)
		for (const { value } of plan.form === "union" ? plan.arms.values() : plan.fields)
			if (value.type === "message") plans.add(value.message);
	return plans;
}

class Planner {
	readonly #plans = new Map<string, MessagePlan>();

	message(desc: DescMessage): MessagePlan {
		const known = this.#plans.get(desc.typeName);
		if (known !== undefined) return known;
		const oneof = desc.oneofs[0];
		const union = oneof !== undefined && desc.fields.length > 0 && desc.fields.every((field) => field.oneof === oneof);
		return union ? this.#union(desc, oneof.localName) : this.#plain(desc);
	}

	#plain(desc: DescMessage): PlainPlan {
		const rules = getOption(desc, messageOption);
		const fields: FieldPlan[] = [];
		const members = new Map<string, FieldPlan>();
		const exclusions: { field: FieldPlan; excludes: FieldPlan }[] = [];
		const plan: PlainPlan = {
			form: FORMS.get(rules.form) ?? "object",
			desc,
			fields,
			members,
			closed: rules.closed,
			unnamedSecret: rules.unnamedSecret,
			exclusions,
			discriminator: undefined,
		};
		this.#plans.set(desc.typeName, plan);
		for (const field of desc.fields) {
			if (UNNAMED_MEMBER_FIELDS.has(field.name)) continue;
			const planned = this.#field(field);
			fields.push(planned);
			members.set(planned.name, planned);
			for (const alias of planned.aliases) members.set(alias, planned);
			if (planned.required && planned.aliases.length > 0)
				throw new Error(`${field}: a required field cannot have aliases`);
		}
		if (plan.form === "bare" && fields.length !== 1)
			throw new Error(`${desc.typeName}: FORM_BARE needs exactly one field`);
		for (const { field, excludes } of rules.exclusions)
			exclusions.push({ field: fieldNamed(plan, field), excludes: fieldNamed(plan, excludes) });
		return plan;
	}

	#union(desc: DescMessage, property: string): UnionPlan {
		const discriminator = getOption(desc, messageOption).discriminator || "kind";
		const tagged = new Map<string, ArmPlan>();
		const arms = new Map<string, ArmPlan>();
		const bare: BareArms = {};
		const plan: { -readonly [K in keyof UnionPlan]: UnionPlan[K] } = {
			form: "union",
			desc,
			property,
			discriminator,
			tagged,
			bare,
			unknown: undefined,
			unknownTypes: [],
			arms,
		};
		this.#plans.set(desc.typeName, plan);
		for (const field of desc.fields) {
			const rules = getOption(field, fieldOption);
			const value = this.#value(field, rules);
			const secret = isSecret(field);
			const place = { property: field.localName, value, secret };
			let arm: ArmPlan = { ...place, tag: undefined };
			switch (value.type) {
				case "string":
				case "boolean":
				case "number":
					bare[value.type] = arm;
					break;
				case "value":
					plan.unknown = arm;
					plan.unknownTypes = rules.jsonTypes;
					break;
				case "message": {
					if (value.message.form === "bare") {
						bare.array = arm;
						break;
					}
					if (value.message.form !== "object") throw new Error(`${field}: an arm must be an object`);
					const tag = rules.tag || value.message.desc.name;
					arm = { ...place, tag };
					const tags = [tag, ...rules.tagAliases];
					for (const name of tags) tagged.set(name, arm);
					const other = value.message.discriminator;
					if (other !== undefined && (other.name !== discriminator || String(other.tags) !== String(tags)))
						throw new Error(`${field}: the message is an arm of another union under other tags`);
					value.message.discriminator = { name: discriminator, tags };
					break;
				}
				default:
					throw new Error(`${field}: ${value.type} cannot be an arm of a union`);
			}
			arms.set(arm.property, arm);
		}
		return plan;
	}

	#field(field: DescField): FieldPlan {
		const rules = getOption(field, fieldOption);
		const name = rules.name || field.name;
		const value = this.#value(field, rules);
		return {
			desc: field,
			property: field.localName,
			name,
			aliases: rules.aliases,
			shape: field.fieldKind === "list" ? "list" : field.fieldKind === "map" ? "map" : "single",
			value,
			required: rules.required,
			nullable: rules.nullable,
			omitNull: rules.omitNull,
			secret: isSecret(field),
			jsonSchema: rules.jsonSchema,
			default: rules.defaultJson === "" ? undefined : JSON.parse(rules.defaultJson),
			minItems: rules.minItems,
			unset: unsetValue(field, value, rules.nullable),
			keyPattern: rules.keyPattern === "" ? undefined : new RegExp(rules.keyPattern, "u"),
			maxValueLength: rules.maxValueLength,
		};
	}

	#value(field: DescField, rules: FieldRules): ValuePlan {
		if (field.enum !== undefined) return { type: "enum", enum: planEnum(field.enum) };
		if (field.message !== undefined) {
			switch (field.message.typeName) {
				case "google.protobuf.Timestamp":
					return { type: "timestamp" };
				case "google.protobuf.Struct":
					return { type: "struct" };
				case "google.protobuf.Value":
					return { type: "value", jsonTypes: rules.jsonTypes };
				default:
					return { type: "message", message: this.message(field.message) };
			}
		}
		switch (field.scalar) {
			case ScalarType.STRING:
				return { type: "string", uuid: rules.uuid };
			case ScalarType.INT64:
				return { type: "integer", bits: 64, gt: rules.gt, gte: rules.gte };
			case ScalarType.INT32:
				return { type: "integer", bits: 32, gt: rules.gt, gte: rules.gte };
			case ScalarType.DOUBLE:
				return { type: "number", gt: rules.gt, gte: rules.gte };
			case ScalarType.BOOL:
				return { type: "boolean" };
			default:
				throw new Error(`${field}: fields of this type are not supported`);
		}
	}
}

/** Names of the fields that hold unnamed members. These fields have no JSON member of their own. */
const UNNAMED_MEMBER_FIELDS: ReadonlySet<string> = new Set(["unnamed_members", "members_json"]);

function isSecret(field: DescField): boolean {
	return field.proto.options?.debugRedact ?? false;
}

const FORMS: ReadonlyMap<MessageRules_Form, PlainPlan["form"]> = new Map([
	[MessageRules_Form.TUPLE, "tuple"],
	[MessageRules_Form.BARE, "bare"],
]);

function unsetValue(field: DescField, { type }: ValuePlan, nullable: boolean): number | string | undefined {
	// An enum's zero value has no JSON name.
	if (type === "enum" && field.fieldKind === "enum") return 0;
	// A field without presence cannot be unset.
	return nullable && type === "string" && field.presence === FeatureSet_FieldPresence.IMPLICIT ? "" : undefined;
}

/** Returns the field of a message whose form is `bare`. */
export function onlyField({ desc, fields }: PlainPlan): FieldPlan {
	const [field] = fields;
	if (field === undefined) throw new Error(`${desc.typeName} has no field`);
	return field;
}

function fieldNamed(plan: PlainPlan, name: string): FieldPlan {
	const field = plan.fields.find((candidate) => candidate.desc.name === name);
	if (field === undefined) throw new Error(`${plan.desc.typeName}: an exclusion names ${name}, which is not a field`);
	return field;
}

export function planEnum(desc: DescEnum): EnumPlan {
	const byName = new Map<string, number>();
	const byNumber = new Map<number, string>();
	for (const value of desc.values) {
		if (value.number === 0) continue;
		const name = getOption(value, enum_value).name || value.localName.toLowerCase();
		byName.set(name, value.number);
		byNumber.set(value.number, name);
	}
	return { desc, byName, byNumber };
}

/** What the plan says about a place in a record's JSON form. */
export interface Place {
	/** Plan of the value, or of each item of `collection`; undefined in free-form JSON and in unnamed members. */
	readonly value: ValuePlan | undefined;
	/** The field whose whole list or map is at the place; undefined at an item of it and for other values. */
	readonly collection: FieldPlan | undefined;
}

export function rootPlace(plan: MessagePlan): Place {
	return { value: { type: "message", message: plan }, collection: undefined };
}

/** Returns the place that a token leads to. `json` is the value at `place`: it determines the arm of a union. */
export function childPlace(place: Place, json: ExactJson | undefined, token: string | number): Place {
	if (place.collection !== undefined) return { ...place, collection: undefined };
	if (place.value?.type !== "message") return NOWHERE;
	const { message } = place.value;
	switch (message.form) {
		case "union": {
			const arm = armOf(message, json);
			return arm === undefined ? NOWHERE : childPlace({ value: arm.value, collection: undefined }, json, token);
		}
		case "tuple":
			return fieldPlace(message.fields[Number(token)]);
		case "bare":
			return childPlace(fieldPlace(onlyField(message)), json, token);
		case "object":
			return fieldPlace(message.members.get(String(token)));
	}
}

const NOWHERE: Place = { value: undefined, collection: undefined };

function fieldPlace(field: FieldPlan | undefined): Place {
	if (field === undefined) return NOWHERE;
	const { value, shape } = field;
	const isFreeForm = value.type === "struct" || (value.type === "value" && value.jsonTypes.length === 0);
	return { value: isFreeForm ? undefined : value, collection: shape === "single" ? undefined : field };
}

/**
 * Converts a path that names fields by their own JSON names to a path through a record's JSON form, where the value of
 * a field may be under an alias.
 */
export function pathInJson(record: ExactJson, plan: MessagePlan, path: readonly string[]): string[] {
	let json: ExactJson | undefined = record;
	let place = rootPlace(plan);
	return path.map((token) => {
		const field = isJsonObject(json) ? objectAt(place, json)?.members.get(token) : undefined;
		const isAbsent = field?.name === token && (memberOf(json, token) ?? null) === null;
		const name = (isAbsent && isJsonObject(json) ? aliasInUse(json, field.aliases) : undefined) ?? token;
		place = childPlace(place, json, token);
		json = memberOf(json, name);
		return name;
	});
}

/** Returns the arm that the type or the discriminator of a JSON value selects; undefined when there is none. */
export function armOf(union: UnionPlan, json: unknown): ArmPlan | undefined {
	const { bare, discriminator, tagged } = union;
	let arm: ArmPlan | undefined;
	switch (typeof json) {
		case "string":
			arm = bare.string;
			break;
		case "number":
		case "bigint":
			arm = bare.number;
			break;
		case "boolean":
			arm = bare.boolean;
			break;
		default:
			if (Array.isArray(json)) arm = bare.array;
			else if (isJsonObject(json) && Object.hasOwn(json, discriminator)) {
				const tag = json[discriminator];
				if (typeof tag === "string") arm = tagged.get(tag);
			}
	}
	return arm ?? (hasJsonType(union.unknownTypes, json) ? union.unknown : undefined);
}

/** Whether a JSON value is of one of the given types. An empty list accepts any value. */
export function hasJsonType(types: readonly JsonType[], json: unknown): boolean {
	if (types.length === 0) return true;
	if (isJsonObject(json)) return types.includes(JsonType.OBJECT);
	if (typeof json === "number" || typeof json === "bigint") return types.includes(JsonType.NUMBER);
	return typeof json === "string" && types.includes(JsonType.STRING);
}

/** Returns the plan of the JSON object at a place; undefined when the schema describes no object there. */
export function objectAt(place: Place, json: ExactJson | undefined): PlainPlan | undefined {
	if (place.collection !== undefined || place.value?.type !== "message") return undefined;
	const { message } = place.value;
	if (message.form !== "union") return message.form === "object" ? message : undefined;
	const arm = armOf(message, json);
	return arm === undefined ? undefined : objectAt({ ...place, value: arm.value }, json);
}

/**
 * Returns the alias that provides the value of a field whose own member is absent or null: the first whose member is
 * not null, or else the first present one.
 */
export function aliasInUse(json: ExactJsonObject, aliases: readonly string[]): string | undefined {
	const present = aliases.filter((alias) => Object.hasOwn(json, alias));
	return present.find((alias) => json[alias] !== null) ?? present[0];
}
