import { z } from "zod";
import { deriveGlance } from "../glance.ts";
import { parseDateTime, parseUuid } from "../json/scalars.ts";
import {
	type FieldPlan,
	isJsonObject,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "../plan/plan.ts";
import { entryProblem, exclusionProblems, presentAlias } from "./rules.ts";

/** A rule that zod has no check of its own for. An issue carries it in `params`; violations.ts gives it its words. */
export type RecordRule =
	| { readonly rule: "uuid" | "timestamp" | "object" | "message" | "tuple" | "missing" }
	| { readonly rule: "enum"; readonly expected: readonly string[] }
	| { readonly rule: "tag"; readonly discriminator: string; readonly expected: readonly string[] }
	| { readonly rule: "too_long"; readonly limit: number; readonly length: number }
	| { readonly rule: "value"; readonly problem: string }
	/** An issue that another schema found further inside. */
	| { readonly rule: "inner"; readonly issue: z.core.$ZodIssue };

type Path = readonly (string | number)[];
type Report = (rule: RecordRule, path?: Path) => void;

/**
 * Derives the schema of a record's JSON form from its plan. The schema only judges; decode.ts takes the values from
 * the JSON itself, because a record keeps members that no schema names. A record that meets every rule at a glance,
 * as nearly every one does, is not looked at field by field.
 */
export function deriveSchema(plan: MessagePlan): z.ZodType {
	const meetsAll = deriveGlance(plan);
	const fieldByField = deriveFullSchema(plan);
	return z.unknown().check(
		judging((json, report) => {
			if (!meetsAll(json)) judgeInner(fieldByField, json, [], report);
		}),
	);
}

/** Derives the schema that looks at every field of every record. */
export function deriveFullSchema(plan: MessagePlan): z.ZodType {
	return new SchemaBuilder().message(plan);
}

class SchemaBuilder {
	readonly #schemas = new Map<MessagePlan, z.ZodType>();
	readonly #unfinished = new Set<MessagePlan>();

	message(plan: MessagePlan): z.ZodType {
		const known = this.#schemas.get(plan);
		if (known !== undefined) return known;
		// A message that contains itself refers to its own schema, which is finished when the first record is judged.
		if (this.#unfinished.has(plan)) return z.lazy(() => this.message(plan));
		this.#unfinished.add(plan);
		const schema = plan.form === "union" ? this.#union(plan) : this.#plain(plan);
		this.#unfinished.delete(plan);
		this.#schemas.set(plan, schema);
		return schema;
	}

	#plain(plan: PlainPlan): z.ZodType {
		if (plan.form === "tuple") return this.#tuple(plan);
		if (plan.form === "object") return this.#object(plan);
		const [field] = plan.fields;
		if (field === undefined) throw new Error(`${plan.desc.typeName} has no field`);
		return this.#shape(field);
	}

	#object(plan: PlainPlan): z.ZodType {
		const shape: Record<string, z.ZodType> = {};
		for (const field of plan.fields) {
			const value = field.nullable ? this.#shape(field).nullable() : this.#shape(field);
			shape[field.name] = field.required ? value : value.optional();
		}
		// The union that the object is an arm of has judged the discriminator.
		if (plan.discriminator !== undefined) shape[plan.discriminator.name] = z.unknown();
		const object: z.ZodType = plan.closed ? z.strictObject(shape) : z.object(shape);
		const exclusive =
			plan.exclusions.length === 0
				? object
				: object.check(judging((json, report) => judgeExclusions(plan, json, report)));
		const renamed = plan.fields.filter((field) => field.aliases.length > 0);
		return renamed.length === 0 ? exclusive : z.preprocess((json) => canonicalNames(json, renamed), exclusive);
	}

	#tuple(plan: PlainPlan): z.ZodType {
		const items = plan.fields.map((field) => this.#value(field.value));
		return z.unknown().check(
			judging((json, report) => {
				if (!Array.isArray(json)) return report({ rule: "tuple" });
				if (json.length > items.length) return report({ rule: "too_long", limit: items.length, length: json.length });
				items.forEach((item, index) => {
					if (index >= json.length) report({ rule: "missing" }, [index]);
					else judgeInner(item, json[index], [index], report);
				});
			}),
		);
	}

	#union(plan: UnionPlan): z.ZodType {
		const tagged = new Map([...plan.tagged].map(([tag, arm]) => [tag, this.#value(arm.value)]));
		const array = plan.bare.array === undefined ? undefined : this.#value(plan.bare.array.value);
		const tag: RecordRule = { rule: "tag", discriminator: plan.discriminator, expected: [...plan.tagged.keys()] };
		return z.unknown().check(
			judging((json, report) => {
				if (isJsonObject(json)) {
					const kind = Object.hasOwn(json, plan.discriminator) ? json[plan.discriminator] : undefined;
					const arm = typeof kind === "string" ? tagged.get(kind) : undefined;
					if (arm !== undefined) judgeInner(arm, json, [], report);
					else if (plan.unknown === undefined) report(tagged.size === 0 ? bareRule(plan) : tag);
				} else if (Array.isArray(json) && array !== undefined) {
					judgeInner(array, json, [], report);
				} else if (!takesBare(plan, json) && plan.unknown === undefined) {
					report(tagged.size === 0 ? bareRule(plan) : { rule: "message" });
				}
			}),
		);
	}

	#shape(field: FieldPlan): z.ZodType {
		const value = this.#value(field.value);
		if (field.shape === "single") return value;
		if (field.shape === "list") return field.minItems > 0 ? z.array(value).min(field.minItems) : z.array(value);
		return z.unknown().check(
			judging((json, report) => {
				if (!isJsonObject(json)) return report({ rule: "object" });
				for (const [key, item] of Object.entries(json)) {
					const problem = entryProblem(field, key, item);
					if (problem === undefined) judgeInner(value, item, [key], report);
					else report({ rule: "value", problem });
				}
			}),
		);
	}

	#value(plan: ValuePlan): z.ZodType {
		switch (plan.type) {
			case "string":
				return plan.uuid
					? ruled({ rule: "uuid" }, (json) => typeof json === "string" && parseUuid(json) !== undefined)
					: z.string();
			case "integer":
				return bounded(z.int(), plan);
			case "number":
				return bounded(z.number(), plan);
			case "boolean":
				return z.boolean();
			case "enum": {
				const names = plan.enum.byName;
				return ruled(
					{ rule: "enum", expected: [...names.keys()] },
					(json) => typeof json === "string" && names.has(json),
				);
			}
			case "timestamp":
				return ruled({ rule: "timestamp" }, (json) => typeof json === "string" && parseDateTime(json) !== undefined);
			case "struct":
				return ruled({ rule: "object" }, isJsonObject);
			case "value":
				return z.unknown();
			case "message":
				return this.message(plan.message);
		}
	}
}

function bounded<T extends z.ZodNumber>(
	schema: T,
	bounds: { readonly gt: number | undefined; readonly gte: number | undefined },
): z.ZodType {
	const above: z.ZodNumber = bounds.gt === undefined ? schema : schema.gt(bounds.gt);
	return bounds.gte === undefined ? above : above.gte(bounds.gte);
}

/** A check that reports broken rules instead of zod's issues. */
function judging(judge: (json: unknown, report: Report) => void): z.core.CheckFn<unknown> {
	return (payload) =>
		judge(payload.value, (params, path = []) => {
			payload.issues.push({ code: "custom", input: payload.value, params, path: [...path] });
		});
}

function ruled(rule: RecordRule, holds: (json: unknown) => boolean): z.ZodType {
	return z.unknown().check(
		judging((json, report) => {
			if (!holds(json)) report(rule);
		}),
	);
}

/** Judges a value inside by zod's own entry for schemas within schemas, which spares `safeParse`'s preparations. */
function judgeInner(schema: z.ZodType, json: unknown, path: Path, report: Report): void {
	const result = schema._zod.run({ value: json, issues: [] }, { async: false });
	if (result instanceof Promise) throw new TypeError("the schema has no asynchronous checks");
	for (const raw of result.issues)
		report({ rule: "inner", issue: z.core.util.finalizeIssue(raw, { async: false }, z.config()) }, path);
}

function takesBare(plan: UnionPlan, json: unknown): boolean {
	switch (typeof json) {
		case "string":
			return plan.bare.string !== undefined;
		case "boolean":
			return plan.bare.boolean !== undefined;
		case "number":
			return plan.bare.number !== undefined && Number.isFinite(json);
		default:
			return false;
	}
}

function bareRule(plan: UnionPlan): RecordRule {
	const names = Object.keys(plan.bare);
	return { rule: "value", problem: `must be of type ${names.join(" or ")}` };
}

function judgeExclusions(plan: PlainPlan, json: unknown, report: Report): void {
	if (isJsonObject(json)) for (const problem of exclusionProblems(plan, json)) report({ rule: "value", problem });
}

/** Renames members that stand under an alias, where their own name is absent. */
function canonicalNames(json: unknown, fields: readonly FieldPlan[]): unknown {
	if (!isJsonObject(json)) return json;
	let renamed = json;
	for (const field of fields) {
		if (Object.hasOwn(json, field.name)) continue;
		const alias = presentAlias(field, json);
		if (alias === undefined) continue;
		const { [alias]: value, ...others } = renamed;
		renamed = value === undefined ? renamed : { ...others, [field.name]: value };
	}
	return renamed;
}
