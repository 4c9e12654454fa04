import { z } from "zod";
import { type ExactJson, isJsonObject, memberOf } from "../json/json-value.ts";
import { parseDateTime, parseUuid } from "../json/scalars.ts";
import { armOf, isOfSort } from "../plan/place.ts";
import type { Bounds, FieldPlan, MessagePlan, PlainPlan, UnionPlan, ValuePlan } from "../plan/plan.ts";

/** Most violations that are listed for one record. Judging goes no further in a list or a map once there are so many. */
export const MAX_VIOLATIONS = 100;

/** A bigint of 64 bits signed; one of more is not judged further. */
const INT64 = z
	.bigint()
	.gte(-(2n ** 63n), { abort: true })
	.lte(2n ** 63n - 1n, { abort: true });

/**
 * The judge of a record's JSON form: a zod schema, derived from the record's plan. It only judges; decode.ts takes the
 * values from the JSON itself, because a record keeps members that no schema names.
 */
export class RecordSchema {
	readonly plan: MessagePlan;
	readonly #builder: SchemaBuilder;
	readonly #compiling: SchemaBuilder;

	/** @param like a schema of a plan that has messages in common with this one: these are compiled once for both */
	constructor(plan: MessagePlan, like?: RecordSchema) {
		this.plan = plan;
		this.#builder = like === undefined ? new SchemaBuilder(false) : like.#builder;
		this.#compiling = like === undefined ? new SchemaBuilder(true) : like.#compiling;
	}

	/** What is wrong with a record's JSON form: not much more than {@link MAX_VIOLATIONS} issues, none when it is valid. */
	judge(json: ExactJson): readonly z.core.$ZodIssue[] {
		return this.isValid(json) ? [] : this.issues(json);
	}

	/** Whether {@link issues} finds none. By code that zod compiles from the schema, which takes a fifth of the time. */
	isValid(json: ExactJson): boolean {
		this.#compiling.reset();
		return this.#compiling.message(this.plan).validate(json);
	}

	/** As {@link judge}, whatever {@link isValid} says. */
	issues(json: ExactJson): readonly z.core.$ZodIssue[] {
		this.#builder.reset();
		return this.#builder.message(this.plan).safeParse(json).error?.issues ?? [];
	}

	/** Whether a JSON value is valid for a field. */
	accepts(field: FieldPlan, json: ExactJson): boolean {
		this.#compiling.reset();
		return this.#compiling.field(field).safeParse(json).success;
	}
}

class SchemaBuilder {
	readonly #messages = new Map<MessagePlan, z.ZodType>();
	readonly #fields = new Map<FieldPlan, z.ZodType>();
	/** Whether the schemas are compiled, and tell no more than whether a value is valid. */
	readonly #compiles: boolean;
	#issuesLeft = MAX_VIOLATIONS;
	#refused = false;

	constructor(compiles: boolean) {
		this.#compiles = compiles;
	}

	/** Makes the schemas ready for another value. */
	reset(): void {
		this.#issuesLeft = MAX_VIOLATIONS;
		this.#refused = false;
	}

	message(plan: MessagePlan): z.ZodType {
		// Built when the first value is judged, because a message can contain itself.
		const build = () => (this.#compiles ? this.#compiled(plan) : z.lazy(() => this.#schema(plan)));
		return this.#messages.getOrInsertComputed(plan, build);
	}

	#schema(plan: MessagePlan): z.ZodType {
		return plan.form === "union" ? this.#union(plan) : this.#plain(plan);
	}

	/**
	 * The schema of a message, which is compiled by itself: zod compiles no schema that contains itself, and the engine
	 * specialises small functions sooner.
	 */
	#compiled(plan: MessagePlan): z.ZodType {
		let compiled: z.ZodType | undefined;
		return z.custom((json) => {
			compiled ??= z.compile(this.#schema(plan), { strict: true });
			// zod judges what the compiled code refuses a second time. One refusal is enough, or each level of messages would
			// double the time.
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
				throw new Error(`${plan.desc}: an arm is an object`);
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
				const list = z.array(this.#bounded(this.#value(field.value)));
				return field.minItems > 0 ? list.min(field.minItems) : list;
			}
			case "map":
				return this.#map(field);
		}
	}

	#map({ keyPattern, maxValueLength, value: plan }: FieldPlan): z.ZodType {
		const plainValue = this.#value(plan);
		const value = this.#bounded(
			maxValueLength === 0
				? plainValue
				: plainValue.refine((text) => typeof text !== "string" || !isLonger(text, maxValueLength), {
						error: `values must have at most ${maxValueLength} characters`,
					}),
		);
		const key =
			keyPattern === undefined ? z.string() : z.string().regex(keyPattern, `keys must match ${keyPattern.source}`);
		// A record of zod leaves out the member `__proto__`.
		const proto = z.unknown().check(({ value: json, issues }) => {
			const name = "__proto__";
			const member = isJsonObject(json) ? memberOf(json, name) : undefined;
			if (member === undefined) return;
			const common = { input: member, path: [name] };
			const wrong = { key: key.safeParse(name).error, value: value.safeParse(member).error };
			if (wrong.key !== undefined)
				issues.push({ ...common, code: "invalid_key", origin: "record", issues: wrong.key.issues });
			else if (wrong.value !== undefined)
				issues.push({ ...common, code: "invalid_element", origin: "map", key: name, issues: wrong.value.issues });
		});
		return proto.pipe(z.record(this.#bounded(key), value));
	}

	/** An item that drops its issues when there are enough of them. */
	#bounded<Item extends z.ZodType>(item: Item): Item {
		if (this.#compiles) return item;
		return item.superRefine(
			(_, { issues }) => {
				issues.length = Math.min(issues.length, this.#issuesLeft);
				this.#issuesLeft -= issues.length;
			},
			{ when: ({ issues }) => issues.length > 0 },
		);
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
				// An object schema would copy the object.
				return z.custom(isJsonObject);
			case "value":
				return plan.sorts.length === 0 ? z.unknown() : z.custom((json) => isOfSort(plan.sorts, json));
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

/** Whether a text has more than a number of Unicode code points. */
export function isLonger(text: string, limit: number): boolean {
	// A code point is one UTF-16 unit or two.
	return text.length > limit && (text.length > 2 * limit || [...text].length > limit);
}
