import type { JsonObject } from "@bufbuild/protobuf";
import type { FieldPlan, PlainPlan } from "./plan.ts";

/** What is wrong with an entry of a map, by the rules that concern the map as a whole; undefined when nothing is. */
export function entryProblem(field: FieldPlan, key: string, item: unknown): string | undefined {
	if (field.keyPattern !== undefined && !field.keyPattern.test(key))
		return `keys must match ${field.keyPattern.source}`;
	if (field.maxValueLength > 0 && typeof item === "string" && item.length > field.maxValueLength) {
		if ([...item].length > field.maxValueLength) return `values must have at most ${field.maxValueLength} characters`;
	}
	return undefined;
}

/** What is wrong with an object because of two fields that exclude each other, for each such pair. */
export function exclusionProblems(plan: PlainPlan, json: JsonObject): string[] {
	return plan.exclusions
		.filter(({ field, excludes }) => {
			const [value, other] = [json[field.name], json[excludes.name]];
			return value !== undefined && value !== null && other !== undefined && other !== excludes.default;
		})
		.map(({ field, excludes }) => `${field.name} cannot be combined with a custom ${excludes.name}`);
}

/** The first of a field's aliases that an object has a member under; it counts where the field's own name is absent. */
export function presentAlias(field: FieldPlan | undefined, json: JsonObject): string | undefined {
	return field?.aliases.find((alias) => Object.hasOwn(json, alias));
}
