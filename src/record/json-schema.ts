import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { comments } from "../../gen/comments.js";
import { JsonType } from "../../gen/conversations/options/v1/options_pb.js";
import { type ExactJsonObject, isJsonObject } from "./json/json-value.ts";
import type { Bounds, EnumPlan, FieldPlan, MessagePlan, PlainPlan, UnionPlan, ValuePlan } from "./plan/plan.ts";

/** JSON Schemas (draft 2020-12) by name. The bounds of integers are bigints. */
export type JsonSchemas = Record<string, ExactJsonObject>;

/**
 * Derives JSON Schemas of a record's JSON form from its plan: one for each object, tuple, union and enum, under the
 * name that it has in the .proto files, described by its comment there. A message that is nothing but its only field
 * has none of its own.
 *
 * They say what schema.ts checks, with these differences:
 * - `format` names the usual form of UUIDs (RFC 9562) and date-times (RFC 3339); schema.ts takes further ones.
 * - A member under another accepted name stands in `patternProperties`, so that generated clients have one member for
 *   both. It is judged even when it stands beside its own name, where schema.ts takes it for one that no field names.
 * - Exclusions know members by their own names only.
 * - They cannot speak of nesting depth, lone surrogates and numbers of elements (record-limits.ts).
 *
 * @param referencePrefix what comes before a schema's name in a `$ref`
 * @throws Error when two messages have the same name
 */
export function deriveJsonSchemas(plan: MessagePlan, referencePrefix: string): JsonSchemas {
	const builder = new JsonSchemaBuilder(referencePrefix);
	builder.message(plan, false);
	return builder.schemas;
}

class JsonSchemaBuilder {
	readonly schemas: JsonSchemas = {};
	readonly #described = new Map<string, string>();
	readonly #prefix: string;

	constructor(referencePrefix: string) {
		this.#prefix = referencePrefix;
	}

	message(plan: MessagePlan, secret: boolean): ExactJsonObject {
		if (plan.form !== "bare") return this.#reference(plan.desc, () => this.#named(plan));
		const [field] = plan.fields;
		if (field === undefined) throw new Error(`${plan.desc.typeName} has no field`);
		return this.#shape(field, secret || field.secret);
	}

	/** Refers to the schema of a message or an enum, and describes it on the first occasion. */
	#reference(
		desc: { readonly name: string; readonly typeName: string },
		describe: () => ExactJsonObject,
	): ExactJsonObject {
		const { name, typeName } = desc;
		const known = this.#described.get(name);
		if (known === undefined) {
			// Set before the message is described, because it may contain itself.
			this.#described.set(name, typeName);
			// Keeps the place in the order of the first mention.
			this.schemas[name] = {};
			this.schemas[name] = described(describe(), comments[typeName]);
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
			properties[name] = { type: "string", ...oneOfNames(tags) };
			required.push(name);
		}
		const aliased: ExactJsonObject = {};
		for (const field of plan.fields) {
			const schema = this.#field(field);
			properties[field.name] = described(
				isShown(field.default) ? { ...schema, default: field.default } : schema,
				commentOn(field),
			);
			for (const alias of field.aliases) if (plan.members.get(alias) === field) aliased[`^${alias}$`] = schema;
			if (field.required) required.push(field.name);
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
			prefixItems: plan.fields.map((field) => this.#value(field.value, field.secret)),
			items: false,
			minItems: count,
			maxItems: count,
		};
	}

	#union(plan: UnionPlan): ExactJsonObject {
		const arms = [...plan.arms.values()].filter((arm) => arm !== plan.unknown);
		const schemas = arms.map((arm) => marked(this.#value(arm.value, arm.secret), arm.secret));
		if (plan.unknown !== undefined) return { oneOf: [...schemas, marked(unknownKind(plan), plan.unknown.secret)] };
		return arms.every((arm) => arm.tag !== undefined)
			? { oneOf: schemas, discriminator: this.#discriminator(plan) }
			: { oneOf: schemas };
	}

	#discriminator(plan: UnionPlan): ExactJsonObject {
		const mapping: ExactJsonObject = {};
		for (const [tag, { value }] of plan.tagged)
			if (value.type === "message") mapping[tag] = this.#prefix + value.message.desc.name;
		return { propertyName: plan.discriminator, mapping };
	}

	#field(field: FieldPlan): ExactJsonObject {
		const schema = marked(this.#shape(field, field.secret), field.secret);
		return field.nullable ? orNull(schema) : schema;
	}

	#shape(field: FieldPlan, secret: boolean): ExactJsonObject {
		const value = this.#value(field.value, secret);
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

	#value(plan: ValuePlan, secret: boolean): ExactJsonObject {
		switch (plan.type) {
			case "string":
				return { type: "string", ...(plan.uuid ? { format: "uuid" } : secret ? { format: "password" } : {}) };
			case "integer":
				return {
					type: "integer",
					format: "int64",
					...(lowerBound(plan) ?? { minimum: -(2n ** 63n) }),
					maximum: 2n ** 63n - 1n,
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
				return ofSorts(plan.sorts);
			case "message":
				return this.message(plan.message, secret);
		}
	}
}

function described(schema: ExactJsonObject, description: string | undefined): ExactJsonObject {
	return description === undefined ? schema : { ...schema, description };
}

/** The comment on a field, and under which other names the member is accepted. */
function commentOn({ desc, aliases }: FieldPlan): string | undefined {
	const comment = comments[`${desc.parent.typeName}.${desc.name}`];
	if (aliases.length === 0) return comment;
	return `${comment ?? ""} Also accepted as ${aliases.join(", ")}.`.trimStart();
}

/** A secret is redacted when a record is read, so what is written there does not come back. */
function marked(schema: ExactJsonObject, secret: boolean): ExactJsonObject {
	return secret ? { ...schema, writeOnly: true } : schema;
}

function enumOf(plan: EnumPlan): ExactJsonObject {
	const values = plan.desc.values.filter(({ number }) => plan.byNumber.has(number));
	return {
		type: "string",
		enum: [...plan.byName.keys()],
		"x-enum-descriptions": values.map(({ name }) => comments[`${plan.desc.typeName}.${name}`] ?? ""),
	};
}

function oneOfNames(names: readonly string[]): ExactJsonObject {
	const [only, ...others] = names;
	return only !== undefined && others.length === 0 ? { const: only } : { enum: [...names] };
}

function lowerBound({ gt, gte }: Bounds): ExactJsonObject | undefined {
	if (gt !== undefined) return { exclusiveMinimum: gt };
	return gte === undefined ? undefined : { minimum: gte };
}

/** What an open union keeps as it came: a value of a sort that it takes, and that no known arm claims. */
function unknownKind(plan: UnionPlan): ExactJsonObject {
	const claimed = claims(plan);
	return { ...ofSorts(plan.unknownTypes), ...(claimed.length > 0 ? { not: { anyOf: claimed } } : {}) };
}

function ofSorts(sorts: readonly JsonType[]): ExactJsonObject {
	const types = sorts.map((sort) => JsonType[sort].toLowerCase());
	const [only, ...others] = types;
	if (only === undefined) return {};
	return { type: others.length === 0 ? only : types };
}

/** What the known arms of an open union claim, well-formed or not: none of it is an unknown kind. */
function claims(plan: UnionPlan): ExactJsonObject[] {
	const tags = [...plan.tagged.keys()];
	const tagged: ExactJsonObject = {
		type: "object",
		properties: { [plan.discriminator]: { enum: tags } },
		required: [plan.discriminator],
	};
	return [...(tags.length > 0 ? [tagged] : []), ...Object.keys(plan.bare).map((type) => ({ type }))];
}

/** Whether a default is shown. An object is not: generators of Go code write it as it is, which does not compile. */
function isShown(value: JsonValue | undefined): value is Exclude<JsonValue, JsonObject> {
	return value !== undefined && !isJsonObject(value);
}

/** Refuses that a field says something while the one that it excludes has another value than its default. */
function exclusion(field: FieldPlan, excludes: FieldPlan): ExactJsonObject {
	const says: ExactJsonObject = { not: { type: "null" } };
	const differs: ExactJsonObject = excludes.default === undefined ? {} : { not: { const: excludes.default } };
	return {
		not: { properties: { [field.name]: says, [excludes.name]: differs }, required: [field.name, excludes.name] },
	};
}

/** The schema with null as a further value. One with neither a type nor a reference takes null as it is. */
function orNull(schema: ExactJsonObject): ExactJsonObject {
	const { $ref, type, ...others } = schema;
	if ($ref !== undefined) return { anyOf: [{ $ref }, { type: "null" }], ...others };
	return type === undefined ? schema : { type: [type, "null"].flat(), ...others };
}
