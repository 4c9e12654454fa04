import type { JsonObject } from "@bufbuild/protobuf";
import type { FieldPlan, PlainPlan } from "../plan/plan.ts";

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
		.filter((exclusion) => isExcluded(exclusion, json[exclusion.field.name], json[exclusion.excludes.name]))
		.map(({ field, excludes }) => `${field.name} cannot be combined with a custom ${excludes.name}`);
}

/**
 * Whether two values cannot stand together.
 *
 * @param value JSON value of the field that excludes, undefined when it is absent
 * @param other JSON value of the field that it excludes
 */
export function isExcluded({ excludes }: PlainPlan["exclusions"][number], value: unknown, other: unknown): boolean {
	return value !== undefined && value !== null && other !== undefined && other !== excludes.default;
}

/** Whether a number is within the bounds of its field. */
export function isWithin(
	{ gt, gte }: { readonly gt: number | undefined; readonly gte: number | undefined },
	value: number,
): boolean {
	return (gt === undefined || value > gt) && (gte === undefined || value >= gte);
}

/** Whether an unset field of a message is null in the JSON form, and not absent. */
export function isNullWhenUnset({ nullable, omitNull }: FieldPlan): boolean {
	return nullable && !omitNull;
}

/** The first of a field's aliases that an object has a member under; it counts where the field's own name is absent. */
export function presentAlias(field: FieldPlan | undefined, json: JsonObject): string | undefined {
	return field?.aliases.find((alias) => Object.hasOwn(json, alias));
}
