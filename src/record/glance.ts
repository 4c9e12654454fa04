import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { parseDateTime, parseUuid } from "./json/scalars.ts";
import { deriveOnce } from "./plan/derive-once.ts";
import { armOf } from "./plan/place.ts";
import {
	type FieldPlan,
	isJsonObject,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "./plan/plan.ts";
import { entryProblem, exclusionProblems, isWithin, presentAlias } from "./validation/rules.ts";

/** Whether a JSON value certainly meets the schema. False says nothing: ask the schema, which also tells why. */
export type Glance = (json: unknown) => boolean;

/**
 * Derives a quick look that spares nearly every record the schema's full judgement, which makes several objects for
 * each value that it judges. It may be strict where the schema is not, never the other way round.
 */
export function deriveGlance(plan: MessagePlan): Glance {
	return new GlanceBuilder().message(plan);
}

class GlanceBuilder {
	readonly #glances = new Map<MessagePlan, Glance>();

	message(plan: MessagePlan): Glance {
		return deriveOnce(this.#glances, plan, () => (plan.form === "union" ? this.#union(plan) : this.#plain(plan)));
	}

	#plain(plan: PlainPlan): Glance {
		const fields = plan.fields.map((field) => this.#field(field));
		if (plan.form === "object") return compileObject(plan, fields);
		if (plan.form === "bare") return fields[0] ?? (() => false);
		return (json) =>
			Array.isArray(json) && json.length === fields.length && fields.every((holds, index) => holds(json[index]));
	}

	#union(plan: UnionPlan): Glance {
		const arms = new Map([...plan.arms.values()].map((arm) => [arm, this.#value(arm.value)]));
		return (json) => {
			const arm = armOf(plan, json);
			return arm !== undefined && (arms.get(arm)?.(json) ?? false);
		};
	}

	#field(field: FieldPlan): Glance {
		const holds = this.#value(field.value);
		switch (field.shape) {
			case "single":
				return holds;
			case "list":
				return (json) => Array.isArray(json) && json.length >= field.minItems && json.every(holds);
			case "map":
				return (json) => {
					if (!isJsonObject(json)) return false;
					for (const [key, item] of Object.entries(json))
						if (!holds(item) || entryProblem(field, key, item) !== undefined) return false;
					return true;
				};
		}
	}

	#value(plan: ValuePlan): Glance {
		switch (plan.type) {
			case "string":
				return plan.uuid
					? (json) => typeof json === "string" && parseUuid(json) !== undefined
					: (json) => typeof json === "string";
			case "integer":
				return (json) => typeof json === "number" && Number.isSafeInteger(json) && isWithin(plan, json);
			case "number":
				return (json) => typeof json === "number" && Number.isFinite(json) && isWithin(plan, json);
			case "boolean":
				return (json) => typeof json === "boolean";
			case "enum":
				return (json) => typeof json === "string" && plan.enum.byName.has(json);
			case "timestamp":
				return (json) => typeof json === "string" && parseDateTime(json) !== undefined;
			case "struct":
				return isJsonObject;
			case "value":
				return () => true;
			case "message":
				return this.message(plan.message);
		}
	}
}

/** Compiles the glance at a JSON object to a function of its own, for the same reason as decode.ts does. */
function compileObject(plan: PlainPlan, fields: readonly Glance[]): Glance {
	const lines = plan.fields.map((field, index) => {
		const alias = field.aliases.length === 0 ? "" : `if (value === undefined) value = aliased(json, ${index});`;
		const present = field.nullable ? `value === null || ${holds(field, index)}` : holds(field, index);
		const met = field.required ? present : `value === undefined || ${present}`;
		return `value = json[${JSON.stringify(field.name)}]; ${alias} if (!(${met})) return false;`;
	});
	const source = `return (json) => {
		if (!isObject(json)) return false;
		let value;
		${lines.join("\n")}
		${plan.exclusions.length === 0 ? "" : "if (excluded(json)) return false;"}
		${plan.closed ? "for (const name in json) if (!named.has(name)) return false;" : ""}
		return true;
	};`;
	const aliased = (json: JsonObject, index: number): JsonValue | undefined => {
		const alias = presentAlias(plan.fields[index], json);
		return alias === undefined ? undefined : json[alias];
	};
	const excluded = (json: JsonObject): boolean => exclusionProblems(plan, json).length > 0;
	// The source holds nothing but names from the descriptors.
	const make = new Function("fields", "isObject", "aliased", "excluded", "named", source) as (
		fields: readonly Glance[],
		isObject: typeof isJsonObject,
		find: typeof aliased,
		exclude: typeof excluded,
		named: ReadonlySet<string>,
	) => Glance;
	return make(fields, isJsonObject, aliased, excluded, new Set(plan.fields.map((field) => field.name)));
}

/** Source that tells whether a value that is there meets its field's rules. */
function holds(field: FieldPlan, index: number): string {
	if (field.shape === "single" && field.value.type === "boolean") return 'typeof value === "boolean"';
	if (field.shape === "single" && field.value.type === "string" && !field.value.uuid)
		return 'typeof value === "string"';
	return `fields[${index}](value)`;
}
