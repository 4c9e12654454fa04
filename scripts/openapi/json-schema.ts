import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { comments } from "../../gen/comments.js";
import { JsonType } from "../../gen/conversations/options/v1/options_pb.js";
import { type ExactJsonObject, isJsonObject } from "../../src/record/json/json-value.ts";
import type {
	Bounds,
	EnumPlan,
	FieldPlan,
	MessagePlan,
	PlainPlan,
	UnionPlan,
	ValuePlan,
} from "../../src/record/plan.ts";

/** JSON Schemas (draft 2020-12) by name. The 64-bit limits of integers are bigints. */
export type JsonSchemas = Record<string, ExactJsonObject>;

/**
 * Derives the JSON Schemas of a record's JSON form from its plan. Each object, tuple, union and enum has one, with its
 * name and its comment from the .proto files. A message whose JSON form is that of its only field has none of its own.
 *
 * The schemas express the rules of schema.ts. Note:
 * - `format` names the usual form of UUIDs (RFC 9562) and date-times (RFC 3339); schema.ts accepts further forms.
 * - The aliases of a member are in `patternProperties`, so that generated clients have one member for all its names.
 * - Exclusions apply to members under their own names only, as in schema.ts.
 * - The limits of nesting depth and of numbers of elements, and the ban on lone surrogates, cannot be expressed
 *   (violations.ts, exact-json.ts).
 *
 * @param referencePrefix text before a schema's name in a `$ref`
 * @param isResponse whether the schemas require what json-form.ts always writes, instead of what a record must have
 * @throws Error when two messages have the same name
 */
export function deriveJsonSchemas(plan: MessagePlan, referencePrefix: string, isResponse = false): JsonSchemas {
	const builder = new JsonSchemaBuilder(referencePrefix, isResponse);
	builder.message(plan);
	return builder.schemas;
}

class JsonSchemaBuilder {
	readonly schemas: JsonSchemas = {};
	readonly #described = new Map<string, string>();
	readonly #prefix: string;
	readonly #isResponse: boolean;

	constructor(referencePrefix: string, isResponse: boolean) {
		this.#prefix = referencePrefix;
		this.#isResponse = isResponse;
	}

	message(plan: MessagePlan): ExactJsonObject {
		if (plan.form !== "bare") return this.#reference(plan.desc, () => this.#named(plan));
		const [field] = plan.fields;
		if (field === undefined) throw new Error(`${plan.desc.typeName} has no field`);
		return this.#shape(field);
	}

	/** Returns a reference to the schema of a message or an enum. The first call for it adds the schema. */
	#reference(
		desc: { readonly name: string; readonly typeName: string },
		describe: () => ExactJsonObject,
	): ExactJsonObject {
		const { name, typeName } = desc;
		const known = this.#described.get(name);
		if (known === undefined) {
			// Set before the schema is derived, because a message may contain itself.
			this.#described.set(name, typeName);
			// Reserves its position: the schemas are in the order of their first reference.
			this.schemas[name] = {};
			this.schemas[name] = withDescription(describe(), comments[typeName]);
		} else if (known !== typeName) throw new Error(`${known} and ${typeName} have the same name`);
		return { $ref: this.#prefix + name };
	}

	#named(plan: MessagePlan): ExactJsonObject {
		if (plan.form === "union") return this.#union(plan);
		return plan.form === "tuple" ? this.#tuple(plan) : this.#object(plan);
	}

	#object(plan: PlainPlan): ExactJsonObject {
		const properties: ExactJsonObject = {};
		const required: string[] = [];
		if (plan.discriminator !== undefined) {
			const { name, tags } = plan.discriminator;
			properties[name] = { type: "string", ...oneOfNames(tags), pattern: `^(${tags.join("|")})$` };
			required.push(name);
		}
		const aliased: ExactJsonObject = {};
		for (const field of plan.fields) {
			const schema = this.#field(field);
			properties[field.name] = withDescription(
				isInSchema(field.default) ? { ...schema, default: field.default } : schema,
				commentOn(field),
			);
			for (const alias of field.aliases) if (plan.members.get(alias) === field) aliased[`^${alias}$`] = schema;
			if (this.#isResponse ? isAlwaysWritten(field) : field.required) required.push(field.name);
		}
		const rules = plan.exclusions.map(({ field, excludes }) => exclusion(field, excludes));
		return {
			type: "object",
			properties,
			...(Object.keys(aliased).length > 0 ? { patternProperties: aliased } : {}),
			...(required.length > 0 ? { required } : {}),
			...(rules.length > 0 ? { allOf: rules } : {}),
			additionalProperties: !plan.closed,
		};
	}

	#tuple(plan: PlainPlan): ExactJsonObject {
		const count = plan.fields.length;
		return {
			type: "array",
			prefixItems: plan.fields.map((field) => this.#value(field.value)),
			items: false,
			minItems: count,
			maxItems: count,
		};
	}

	#union(plan: UnionPlan): ExactJsonObject {
		const arms = [...plan.arms.values()].filter((arm) => arm !== plan.unknown);
		const schemas = arms.map((arm) => withWriteOnly(this.#value(arm.value), arm.secret));
		if (plan.unknown !== undefined) schemas.push(...this.#catchAll(plan, plan.unknown.secret));
		// A discriminator is for objects only.
		const selects = arms.every((arm) => arm.tag !== undefined) && plan.unknownTypes.every(isObject);
		return { oneOf: schemas, ...(selects ? { discriminator: this.#discriminator(plan) } : {}) };
	}

	/**
	 * Returns the schemas of the arm `unknown`: values of the types that it accepts, and that no known arm claims by its type
	 * or tag. That of objects has a name and a tag of the type string with a pattern, because generated clients make types of
	 * schemas with properties only, and find the arm of a value by trying its patterns.
	 */
	#catchAll(plan: UnionPlan, secret: boolean): ExactJsonObject[] {
		const accepted = plan.unknownTypes.length > 0 ? plan.unknownTypes.map(nameOf) : JSON_TYPES;
		const types = accepted.filter((type) => !Object.hasOwn(plan.bare, type));
		const name = `Other${plan.desc.name}`;
		const description = `Any other ${plan.desc.name}. It is stored unchanged.`;
		const reference = { $ref: this.#prefix + name };
		if (plan.tagged.size === 0) {
			this.schemas[name] = withWriteOnly({ ...ofTypes(types), description }, secret);
			return [reference];
		}
		const tag = { type: "string", pattern: patternOfOthers([...plan.tagged.keys()]) };
		const schema = {
			type: "object",
			properties: { [plan.discriminator]: tag },
			additionalProperties: true,
			description,
		};
		this.schemas[name] = withWriteOnly(schema, secret);
		return types.map((type) => (type === "object" ? reference : withWriteOnly({ type }, secret)));
	}

	#discriminator(plan: UnionPlan): ExactJsonObject {
		const mapping: ExactJsonObject = {};
		for (const [tag, { value }] of plan.tagged)
			if (value.type === "message") mapping[tag] = this.#prefix + value.message.desc.name;
		return { propertyName: plan.discriminator, mapping };
	}

	#field(field: FieldPlan): ExactJsonObject {
		const schema = withWriteOnly(this.#shape(field), field.secret);
		return field.nullable ? orNull(schema) : schema;
	}

	#shape(field: FieldPlan): ExactJsonObject {
		const value = this.#value(field.value);
		switch (field.shape) {
			case "single":
				return value;
			case "list":
				return { type: "array", items: value, ...(field.minItems > 0 ? { minItems: field.minItems } : {}) };
			case "map":
				return {
					type: "object",
					...(field.keyPattern === undefined ? {} : { propertyNames: { pattern: field.keyPattern.source } }),
					additionalProperties: field.maxValueLength > 0 ? { ...value, maxLength: field.maxValueLength } : value,
				};
		}
	}

	#value(plan: ValuePlan): ExactJsonObject {
		switch (plan.type) {
			case "string":
				return { type: "string", ...(plan.uuid ? { format: "uuid" } : {}) };
			case "integer":
				return {
					type: "integer",
					format: `int${plan.bits}`,
					...(lowerBound(plan) ?? { minimum: plan.bits === 64 ? -(2n ** 63n) : -(2 ** 31) }),
					maximum: plan.bits === 64 ? 2n ** 63n - 1n : 2 ** 31 - 1,
				};
			case "number":
				return { type: "number", format: "double", ...lowerBound(plan) };
			case "boolean":
				return { type: "boolean" };
			case "enum":
				return this.#reference(plan.enum.desc, () => enumOf(plan.enum));
			case "timestamp":
				return { type: "string", format: "date-time" };
			case "struct":
				return { type: "object", additionalProperties: true };
			case "value":
				// Several types in one schema lose their formats in generated clients.
				if (plan.jsonTypes.length < 2) return ofTypes(plan.jsonTypes.map(nameOf));
				return { anyOf: plan.jsonTypes.map((type) => ofTypes([nameOf(type)])) };
			case "message":
				return this.message(plan.message);
		}
	}
}

function withDescription(schema: ExactJsonObject, description: string | undefined): ExactJsonObject {
	return description === undefined ? schema : { ...schema, description };
}

function isAlwaysWritten({ desc, value, shape, required, nullable, omitNull }: FieldPlan): boolean {
	if (required || omitNull) return required;
	const canBeUnset = desc.presence !== FeatureSet_FieldPresence.IMPLICIT || value.type === "enum";
	return nullable || shape !== "single" || !canBeUnset;
}

/** Returns the comment on a field, with the aliases of its member. */
function commentOn({ desc, aliases }: FieldPlan): string | undefined {
	const comment = comments[`${desc.parent.typeName}.${desc.name}`];
	if (aliases.length === 0) return comment;
	return `${comment ?? ""} Also accepted as ${aliases.join(", ")}.`.trimStart();
}

/** Marks the schema of a secret as write-only, because a read returns a secret redacted unless asked otherwise. */
function withWriteOnly(schema: ExactJsonObject, secret: boolean): ExactJsonObject {
	return secret ? { ...schema, writeOnly: true } : schema;
}

function enumOf(plan: EnumPlan): ExactJsonObject {
	const values = plan.desc.values.filter(({ number }) => plan.byNumber.has(number));
	return {
		type: "string",
		enum: [...plan.byName.keys()],
		"x-enum-varnames": values.map(({ name }) => name),
		"x-enum-descriptions": values.map(({ name }) => comments[`${plan.desc.typeName}.${name}`] ?? ""),
	};
}

/** Returns a pattern of all texts of one line but some. It does without assertions, which not every language has. */
function patternOfOthers(texts: readonly string[]): string {
	return `^${restOf(texts)}$`;
}

/** Returns a pattern of all texts but these, none of which is given twice. */
function restOf(texts: readonly string[]): string {
	const beginnings = [...new Set(texts.flatMap((text) => text.slice(0, 1)))].filter((letter) => letter !== "");
	if (beginnings.length === 0) return ".+";
	const ofEach = beginnings.map(
		(letter) => letter + restOf(texts.filter((text) => text.startsWith(letter)).map((text) => text.slice(1))),
	);
	return `([^${beginnings.join("")}].*|${ofEach.join("|")})${texts.includes("") ? "" : "?"}`;
}

function isObject(type: JsonType): boolean {
	return type === JsonType.OBJECT;
}

function oneOfNames(names: readonly string[]): ExactJsonObject {
	const [only, ...others] = names;
	return only !== undefined && others.length === 0 ? { const: only } : { enum: [...names] };
}

function lowerBound({ gt, gte }: Bounds): ExactJsonObject | undefined {
	if (gt !== undefined) return { exclusiveMinimum: gt };
	return gte === undefined ? undefined : { minimum: gte };
}

/** All types of JSON, as JSON Schema names them. */
const JSON_TYPES: readonly string[] = ["null", "boolean", "number", "string", "array", "object"];

function nameOf(type: JsonType): string {
	return JsonType[type].toLowerCase();
}

function ofTypes(types: readonly string[]): ExactJsonObject {
	const [only, ...others] = types;
	if (only === undefined) return {};
	if (others.length > 0) return { type: [...types] };
	// Without the format, generated clients may read it as a float.
	return { type: only, ...(only === "number" ? { format: "double" } : {}) };
}

/** Whether the schema states a default. It omits an object, which Go generators copy into code that does not compile. */
function isInSchema(value: JsonValue | undefined): value is Exclude<JsonValue, JsonObject> {
	return value !== undefined && !isJsonObject(value);
}

/** Returns a rule that refuses an object whose `field` is not null while `excludes` does not have its default value. */
function exclusion(field: FieldPlan, excludes: FieldPlan): ExactJsonObject {
	const isNotNull: ExactJsonObject = { not: { type: "null" } };
	const isNotDefault: ExactJsonObject = excludes.default === undefined ? {} : { not: { const: excludes.default } };
	return {
		not: {
			properties: { [field.name]: isNotNull, [excludes.name]: isNotDefault },
			required: [field.name, excludes.name],
		},
	};
}

/** Returns the schema extended by null. A schema with neither a type nor a reference accepts null already. */
function orNull(schema: ExactJsonObject): ExactJsonObject {
	const { $ref, type, anyOf, ...others } = schema;
	if (Array.isArray(anyOf)) return { anyOf: [...anyOf, { type: "null" }], ...others };
	if ($ref !== undefined) return { anyOf: [{ $ref }, { type: "null" }], ...others };
	return type === undefined ? schema : { type: [type, "null"].flat(), ...others };
}
