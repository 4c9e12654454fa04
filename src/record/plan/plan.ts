import {
	type DescEnum,
	type DescField,
	type DescMessage,
	getOption,
	type JsonValue,
	ScalarType,
} from "@bufbuild/protobuf";
import {
	enum_value,
	type FieldRules,
	field as fieldOption,
	type JsonType,
	MessageRules_Form,
	message as messageOption,
} from "../../../gen/conversations/options/v1/options_pb.js";

/**
 * What a record is, read from the protobuf descriptors and their options once: the JSON schema, the mapping between
 * JSON and protobuf, redaction and OpenAPI all walk this plan, so that a new field is one line of proto.
 */

/** How a single value (of a field, a list item or a map value) stands in JSON. */
export type ValuePlan =
	| { readonly type: "string"; readonly uuid: boolean }
	| ({ readonly type: "integer" | "number" } & Bounds)
	| { readonly type: "boolean" }
	| { readonly type: "enum"; readonly enum: EnumPlan }
	| { readonly type: "timestamp" }
	/** google.protobuf.Struct: a free-form JSON object. */
	| { readonly type: "struct" }
	/** google.protobuf.Value: JSON of some sorts; without any, all JSON. */
	| { readonly type: "value"; readonly sorts: readonly JsonType[] }
	| { readonly type: "message"; readonly message: MessagePlan };

/** Lower bounds of a number. */
export interface Bounds {
	readonly gt: number | undefined;
	readonly gte: number | undefined;
}

/** JSON names of an enum's values; the zero value, which says nothing, has none. */
export interface EnumPlan {
	readonly desc: DescEnum;
	readonly byName: ReadonlyMap<string, number>;
	readonly byNumber: ReadonlyMap<number, string>;
}

export interface FieldPlan {
	readonly desc: DescField;
	/** Property of the generated message. */
	readonly property: string;
	/** JSON member. */
	readonly name: string;
	/** Other accepted JSON members, in order of preference; they count when the member `name` is absent or null. */
	readonly aliases: readonly string[];
	readonly shape: "single" | "list" | "map";
	readonly value: ValuePlan;
	readonly required: boolean;
	readonly nullable: boolean;
	/** Whether an unset nullable field is left out of the JSON form. */
	readonly omitNull: boolean;
	readonly secret: boolean;
	/** Whether a free-form object is a JSON Schema, whose names do not tell secrets. */
	readonly jsonSchema: boolean;
	readonly default: JsonValue | undefined;
	readonly minItems: number;
	readonly keyPattern: RegExp | undefined;
	readonly maxValueLength: number;
}

/** A message whose JSON form is an object, an array of its fields, or its only field. */
export interface PlainPlan {
	readonly form: "object" | "tuple" | "bare";
	readonly desc: DescMessage;
	readonly fields: readonly FieldPlan[];
	/** Fields by JSON member, aliases included. */
	readonly members: ReadonlyMap<string, FieldPlan>;
	readonly closed: boolean;
	/** Whether each string in a member that no field names is a secret. */
	readonly unnamedSecret: boolean;
	readonly exclusions: readonly { readonly field: FieldPlan; readonly excludes: FieldPlan }[];
	/** Whether the message is an arm of a union, so that its JSON object carries a discriminator. */
	discriminator: { readonly name: string; readonly tags: readonly string[] } | undefined;
}

export interface ArmPlan {
	readonly property: string;
	readonly value: ValuePlan;
	readonly secret: boolean;
	/** Discriminator value; undefined for an arm that is not a JSON object. */
	readonly tag: string | undefined;
}

type BareArms = Partial<Record<"string" | "number" | "boolean" | "array", ArmPlan>>;

/** A message that is one of several forms. */
export interface UnionPlan {
	readonly form: "union";
	readonly desc: DescMessage;
	/** Property of the generated message that holds the oneof. */
	readonly property: string;
	readonly discriminator: string;
	/** Arms that are JSON objects, by discriminator value, other accepted values included. */
	readonly tagged: ReadonlyMap<string, ArmPlan>;
	/** Arms by what they are in JSON, where they are not tagged objects. */
	readonly bare: Readonly<BareArms>;
	/** The arm that keeps what no other arm takes; undefined for a closed union. */
	readonly unknown: ArmPlan | undefined;
	/** The sorts of JSON values that the unknown arm takes; empty for any. */
	readonly unknownTypes: readonly JsonType[];
	readonly arms: ReadonlyMap<string, ArmPlan>;
}

export type MessagePlan = PlainPlan | UnionPlan;

/**
 * Plans a message and all that it contains.
 *
 * @throws Error when the options of a descriptor contradict each other; that is a mistake in the .proto files.
 */
export function planMessage(desc: DescMessage): MessagePlan {
	return new Planner().message(desc);
}

/** A plan and those of all messages in it, each once. */
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
			if (OTHER_MEMBERS.has(field.name)) continue;
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
		return {
			desc: field,
			property: field.localName,
			name,
			aliases: rules.aliases,
			shape: field.fieldKind === "list" ? "list" : field.fieldKind === "map" ? "map" : "single",
			value: this.#value(field, rules),
			required: rules.required,
			nullable: rules.nullable,
			omitNull: rules.omitNull,
			secret: isSecret(field),
			jsonSchema: rules.jsonSchema,
			default: rules.defaultJson === "" ? undefined : JSON.parse(rules.defaultJson),
			minItems: rules.minItems,
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
					return { type: "value", sorts: rules.jsonTypes };
				default:
					return { type: "message", message: this.message(field.message) };
			}
		}
		switch (field.scalar) {
			case ScalarType.STRING:
				return { type: "string", uuid: rules.uuid };
			case ScalarType.INT64:
				return { type: "integer", gt: rules.gt, gte: rules.gte };
			case ScalarType.DOUBLE:
				return { type: "number", gt: rules.gt, gte: rules.gte };
			case ScalarType.BOOL:
				return { type: "boolean" };
			default:
				throw new Error(`${field}: the record has no fields of this type`);
		}
	}
}

/** Fields that keep the members that no other field names. They have no JSON member of their own. */
const OTHER_MEMBERS: ReadonlySet<string> = new Set(["unnamed_members", "members_json"]);

function isSecret(field: DescField): boolean {
	return field.proto.options?.debugRedact ?? false;
}

const FORMS: ReadonlyMap<MessageRules_Form, PlainPlan["form"]> = new Map([
	[MessageRules_Form.TUPLE, "tuple"],
	[MessageRules_Form.BARE, "bare"],
]);

function fieldNamed(plan: PlainPlan, name: string): FieldPlan {
	const field = plan.fields.find((candidate) => candidate.desc.name === name);
	if (field === undefined) throw new Error(`${plan.desc.typeName}: an exclusion names ${name}, which is not a field`);
	return field;
}

function planEnum(desc: DescEnum): EnumPlan {
	const byName = new Map<string, number>();
	const byNumber = new Map<number, string>();
	for (const value of desc.values) {
		const { name } = getOption(value, enum_value);
		if (name === "") continue;
		byName.set(name, value.number);
		byNumber.set(value.number, name);
	}
	return { desc, byName, byNumber };
}
