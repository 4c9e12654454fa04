import { z } from "zod";
import { type ExactJson, isJsonObject } from "../json/json-value.ts";
import { parseDateTime, parseUuid } from "../json/scalars.ts";
import {
	armOf,
	type Bounds,
	type FieldPlan,
	hasJsonType,
	type MessagePlan,
	onlyField,
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
	readonly #messages = new Map<MessagePlan, z.ZodType>();
	readonly #fields = new Map<FieldPlan, z.ZodType>();
	readonly #values = new Map<ValuePlan, z.ZodType>();
	#refused = false;

	constructor(plan: MessagePlan) {
		this.plan = plan;
	}

	/**
	 * Whether a JSON form is valid. Runs code that zod compiles from the schema.
	 *
	 * @param plan another one may have messages in common with that of the schema, which are compiled only once
	 */
	isValid(json: ExactJson, plan = this.plan): boolean {
		this.#refused = false;
		return this.#message(plan).validate(json);
	}

	accepts(field: FieldPlan, json: ExactJson): boolean {
		this.#refused = false;
		return this.#field(field).validate(json);
	}

	acceptsValue(plan: ValuePlan, json: ExactJson): boolean {
		this.#refused = false;
		return this.#value(plan).validate(json);
	}

	/**
	 * Returns the schema of a message, which is compiled separately: zod cannot compile a schema that contains itself,
	 * and V8 specialises small functions sooner. It is built when the first value is validated.
	 */
	#message(plan: MessagePlan): z.ZodType {
		return this.#messages.getOrInsertComputed(plan, () => {
			let compiled: z.ZodType | undefined;
			return z.custom((json) => {
				compiled ??= z.compile(plan.form === "union" ? this.#union(plan) : this.#plain(plan), { strict: true });
				// zod validates a second time what the compiled code refuses. So nothing is validated after the first refusal:
				// otherwise each level of messages would double the time.
				if (!this.#refused) this.#refused = !compiled.validate(json);
				return !this.#refused;
			});
		});
	}

	#field(field: FieldPlan): z.ZodType {
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
				return this.#collection(onlyField(plan));
		}
	}

	#object(plan: PlainPlan): z.ZodObject {
		const shape: Record<string, z.ZodType> = {};
		if (plan.discriminator !== undefined) shape[plan.discriminator.name] = z.literal([...plan.discriminator.tags]);
		for (const field of plan.fields) {
			const value = this.#field(field);
			shape[field.name] = field.required ? value : value.optional();
			for (const alias of field.aliases) shape[alias] ??= value.optional();
		}
		const object = plan.closed ? z.strictObject(shape) : z.object(shape);
		if (plan.exclusions.length === 0) return object;
		return object.check(({ value, issues }) => {
			if (brokenExclusions(plan, value).length > 0) issues.push({ code: "custom", input: value });
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
				const list = z.array(this.#value(field.value));
				return field.minItems > 0 ? list.min(field.minItems) : list;
			}
			case "map":
				return this.#map(field);
		}
	}

	#map({ keyPattern, maxValueLength, value: plan }: FieldPlan): z.ZodType {
		const value = this.#value(plan);
		// Not z.record, which ignores the member `__proto__`.
		return z.unknown().check(({ value: entries, issues }) => {
			const isRight = ([key, item]: [string, unknown]) =>
				keyPattern?.test(key) !== false && value.validate(item) && !isTooLong(item, maxValueLength);
			if (!isJsonObject(entries) || !Object.entries(entries).every(isRight))
				issues.push({ code: "custom", input: entries });
		});
	}

	#value(plan: ValuePlan): z.ZodType {
		return this.#values.getOrInsertComputed(plan, () => this.#newValue(plan));
	}

	#newValue(plan: ValuePlan): z.ZodType {
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
				return this.#message(plan.message);
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

export function brokenExclusions({ exclusions }: PlainPlan, json: Readonly<Record<string, unknown>>) {
	return exclusions.filter(({ field, excludes }) => {
		const other = json[excludes.name];
		return (json[field.name] ?? null) !== null && other !== undefined && other !== excludes.default;
	});
}

/** Whether the value of a map has too many characters. */
export function isTooLong(json: unknown, maxValueLength: number): boolean {
	return maxValueLength > 0 && typeof json === "string" && isLonger(json, maxValueLength);
}

/** Whether a text has more than `limit` Unicode code points. */
export function isLonger(text: string, limit: number): boolean {
	// A code point is one or two UTF-16 code units.
	return text.length > limit && (text.length > 2 * limit || [...text].length > limit);
}
