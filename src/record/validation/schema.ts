import { z } from "zod";
import { type ExactJson, isJsonObject } from "../json/json-value.ts";
import { parseDateTime, parseUuid } from "../json/scalars.ts";
import {
	armOf,
	type Bounds,
	type FieldPlan,
	hasJsonType,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "../plan.ts";

/** Maximum number of violations that are listed for one record. It never decides whether a record is valid. */
export const MAX_VIOLATIONS = 100;

/** A signed 64-bit integer as a bigint. A bigint outside this range is not checked further. */
const INT64 = z
	.bigint()
	.gte(-(2n ** 63n), { abort: true })
	.lte(2n ** 63n - 1n, { abort: true });

/**
 * Validates a record's JSON form with a zod schema that is derived from the record's plan. zod's output is not used:
 * json-form.ts takes the values from the JSON itself, because a record keeps members that no schema names.
 */
export class RecordSchema {
	readonly plan: MessagePlan;
	readonly #builder: SchemaBuilder;
	readonly #compilingBuilder: SchemaBuilder;

	/** @param related a schema whose plan has messages in common with `plan`; these are built and compiled only once */
	constructor(plan: MessagePlan, related?: RecordSchema) {
		this.plan = plan;
		this.#builder = related === undefined ? new SchemaBuilder(false) : related.#builder;
		this.#compilingBuilder = related === undefined ? new SchemaBuilder(true) : related.#compilingBuilder;
	}

	/** Whether a record's JSON form is valid. Runs code that zod compiles from the schema. */
	isValid(json: ExactJson): boolean {
		this.#compilingBuilder.reset();
		return this.#compilingBuilder.message(this.plan).validate(json);
	}

	/**
	 * Lists the issues of a JSON form that is not valid. Once {@link MAX_VIOLATIONS} are found, it skips the further items
	 * of lists and maps.
	 */
	issues(json: ExactJson): readonly z.core.$ZodIssue[] {
		this.#builder.reset();
		return this.#builder.message(this.plan).safeParse(json).error?.issues ?? [];
	}

	/** Whether a JSON value is valid for a field. */
	accepts(field: FieldPlan, json: ExactJson): boolean {
		this.#compilingBuilder.reset();
		return this.#compilingBuilder.field(field).safeParse(json).success;
	}
}

class SchemaBuilder {
	readonly #messages = new Map<MessagePlan, z.ZodType>();
	readonly #fields = new Map<FieldPlan, z.ZodType>();
	/** Whether the schemas are compiled. Compiled schemas only determine whether a value is valid. */
	readonly #compiles: boolean;
	/** Number of issues found in items of lists and maps. */
	#found = 0;
	#refused = false;

	constructor(compiles: boolean) {
		this.#compiles = compiles;
	}

	/** Prepares the schemas for another value. */
	reset(): void {
		this.#found = 0;
		this.#refused = false;
	}

	message(plan: MessagePlan): z.ZodType {
		// Built when the first value is validated, because a message can contain itself.
		const build = () => (this.#compiles ? this.#compiled(plan) : z.lazy(() => this.#schema(plan)));
		return this.#messages.getOrInsertComputed(plan, build);
	}

	#schema(plan: MessagePlan): z.ZodType {
		return plan.form === "union" ? this.#union(plan) : this.#plain(plan);
	}

	/**
	 * Returns the schema of a message, which is compiled separately: zod cannot compile a schema that contains itself,
	 * and V8 specialises small functions sooner.
	 */
	#compiled(plan: MessagePlan): z.ZodType {
		let compiled: z.ZodType | undefined;
		return z.custom((json) => {
			compiled ??= z.compile(this.#schema(plan), { strict: true });
			// zod validates a second time what the compiled code refuses. So nothing is validated after the first refusal:
			// otherwise each level of messages would double the time.
			if (!this.#refused) this.#refused = !compiled.validate(json);
			return !this.#refused;
		});
	}

	field(field: FieldPlan): z.ZodType {
		return this.#fields.getOrInsertComputed(field, () => {
			const value = this.#collection(field);
			return field.nullable ? value.nullable() : value;
		});
	}

	#plain(plan: PlainPlan): z.ZodType {
		const [first, ...others] = plan.fields;
		switch (plan.form) {
			case "object":
				return this.#object(plan);
			case "tuple":
				return first === undefined
					? z.tuple([])
					: z.tuple([this.#value(first.value), ...others.map((item) => this.#value(item.value))]);
			case "bare":
				if (first === undefined) throw new Error(`${plan.desc.typeName} has no field`);
				return this.#collection(first);
		}
	}

	#object(plan: PlainPlan): z.ZodObject {
		const shape: Record<string, z.ZodType> = {};
		if (plan.discriminator !== undefined) shape[plan.discriminator.name] = z.literal([...plan.discriminator.tags]);
		for (const field of plan.fields) {
			const value = this.field(field);
			shape[field.name] = field.required ? value : value.optional();
			for (const alias of field.aliases) shape[alias] ??= value.optional();
		}
		const object = plan.closed ? z.strictObject(shape) : z.object(shape);
		if (plan.exclusions.length === 0) return object;
		return object.check(({ value, issues }) => {
			for (const { field, excludes } of plan.exclusions) {
				const given = value[field.name] ?? null;
				const other = value[excludes.name];
				const message = `${field.name} cannot be combined with a custom ${excludes.name}`;
				if (given !== null && other !== undefined && other !== excludes.default)
					issues.push({ code: "custom", message, input: value });
			}
		});
	}

	#union(plan: UnionPlan): z.ZodType {
		const options: z.ZodType[] = [];
		const arms = new Set(plan.tagged.values());
		const [first, ...others] = [...arms].map(({ value }) => {
			if (value.type !== "message" || value.message.form !== "object")
				throw new Error(`${plan.desc}: an arm must be an object`);
			return this.#object(value.message);
		});
		if (first !== undefined) options.push(z.discriminatedUnion(plan.discriminator, [first, ...others]));
		for (const arm of Object.values(plan.bare)) options.push(this.#value(arm.value));
		const { unknown } = plan;
		if (unknown !== undefined) options.push(z.custom((json) => armOf(plan, json) === unknown));
		return z.union(options);
	}

	#collection(field: FieldPlan): z.ZodType {
		switch (field.shape) {
			case "single":
				return this.#value(field.value);
			case "list": {
				const item = this.#value(field.value);
				const list = this.#compiles
					? z.array(item)
					: z.array(z.unknown()).check(({ value, issues }) => {
							for (const [index, json] of value.entries()) {
								if (this.#isEnough(issues)) return;
								this.#checkItem(item, json, index, issues);
							}
						});
				return field.minItems > 0 ? list.min(field.minItems) : list;
			}
			case "map":
				return this.#map(field);
		}
	}

	#map({ keyPattern, maxValueLength, value: plan }: FieldPlan): z.ZodType {
		const plainValue = this.#value(plan);
		const value =
			maxValueLength === 0
				? plainValue
				: plainValue.refine((text) => typeof text !== "string" || !isLonger(text, maxValueLength), {
						error: `values must have at most ${maxValueLength} characters`,
					});
		// Not z.record, which ignores the member `__proto__`.
		return z.unknown().check(({ value: entries, issues }) => {
			if (!isJsonObject(entries)) {
				issues.push({ code: "invalid_type", expected: "record", input: entries });
				return;
			}
			for (const [key, json] of Object.entries(entries)) {
				if (this.#isEnough(issues)) return;
				if (keyPattern === undefined || keyPattern.test(key)) this.#checkItem(value, json, key, issues);
				else {
					this.#found++;
					const message = `keys must match ${keyPattern.source}`;
					const wrong: z.core.$ZodIssueCustom = { code: "custom", message, path: [] };
					issues.push({ code: "invalid_key", origin: "record", issues: [wrong], path: [key], input: json });
				}
			}
		});
	}

	/** Adds the issues of an item of a list or a map. */
	#checkItem(schema: z.ZodType, json: unknown, step: string | number, issues: z.core.$ZodRawIssue[]): void {
		if (this.#compiles) {
			if (!schema.validate(json)) issues.push({ code: "custom", path: [step], input: json });
			return;
		}
		const before = this.#found;
		const found = schema.safeParse(json).error?.issues ?? [];
		if (found.length > 0)
			issues.push({ code: "invalid_element", origin: "map", key: step, issues: [...found], path: [step], input: json });
		// Lists and maps in the item have counted some of these issues.
		this.#found = Math.max(this.#found, before + found.length);
	}

	/** Whether the further items of a list or a map need no check: the value is refused, and enough issues are listed. */
	#isEnough(issues: readonly z.core.$ZodRawIssue[]): boolean {
		return this.#compiles ? issues.length > 0 : this.#found >= MAX_VIOLATIONS;
	}

	#value(plan: ValuePlan): z.ZodType {
		switch (plan.type) {
			case "string":
				return plan.uuid ? z.string().refine((text) => parseUuid(text) !== undefined) : z.string();
			case "integer":
				return z.union([boundedNumber(z.int(), plan), boundedBigInt(INT64, plan)]);
			case "number":
				return z.union([boundedNumber(z.number(), plan), boundedBigInt(z.bigint(), plan)]);
			case "boolean":
				return z.boolean();
			case "enum":
				return z.enum([...plan.enum.byName.keys()]);
			case "timestamp":
				return z.string().refine((text) => parseDateTime(text) !== undefined);
			case "struct":
				// z.object would copy the object.
				return z.custom(isJsonObject);
			case "value":
				return plan.jsonTypes.length === 0 ? z.unknown() : z.custom((json) => hasJsonType(plan.jsonTypes, json));
			case "message":
				return this.message(plan.message);
		}
	}
}

function boundedNumber(schema: z.ZodNumber, { gt, gte }: Bounds): z.ZodNumber {
	const above = gt === undefined ? schema : schema.gt(gt);
	return gte === undefined ? above : above.gte(gte);
}

function boundedBigInt(schema: z.ZodBigInt, { gt, gte }: Bounds): z.ZodBigInt {
	const above = gt === undefined ? schema : schema.gt(BigInt(gt));
	return gte === undefined ? above : above.gte(BigInt(gte));
}

/** Whether a text has more than `limit` Unicode code points. */
export function isLonger(text: string, limit: number): boolean {
	// A code point is one or two UTF-16 code units.
	return text.length > limit && (text.length > 2 * limit || [...text].length > limit);
}
