import { locate, objectAt } from "../plan/place.ts";
import type { FieldPlan, MessagePlan, PlainPlan } from "../plan/plan.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject } from "./json-value.ts";
import { parsePointer } from "./pointer.ts";

/** Most members of a record that no field names. Real records have a few dozen. */
export const MAX_UNNAMED_MEMBERS = 10_000;

/** The place of a member in a record's JSON form. */
export interface MemberPlace {
	/** The object that the member belongs to. */
	readonly object: ExactJsonObject;
	/** Of the member there: that of its field if there is one. */
	readonly name: string;
	/** The unset field that the member is for; undefined when the member stays one that no field names. */
	readonly field: FieldPlan | undefined;
}

/**
 * Finds the places of members that were kept by their pointers, in one record. A release that names more members than the
 * one that kept a member may have a field for it.
 *
 * @returns gives the place that a JSON Pointer (RFC 6901) of a member leads to; undefined when no such member can stand
 *   there: the pointer does not lead to an object that the schema describes, or the object is closed, or a field of this
 *   name is set
 */
export function memberPlaces(record: ExactJson, plan: MessagePlan): (pointer: string) => MemberPlace | undefined {
	/** By pointer. Many members belong to the same object. */
	const objects = new Map<string, DescribedObject | undefined>();
	return (pointer) => {
		const parent = pointer.slice(0, pointer.lastIndexOf("/"));
		const [name] = parsePointer(pointer.slice(parent.length)) ?? [];
		if (name === undefined) return undefined;
		const described = objects.getOrInsertComputed(parent, () => describedAt(record, plan, parent));
		if (described === undefined || described.plan.discriminator?.name === name) return undefined;
		const field = described.plan.members.get(name);
		const { json: object } = described;
		if (field === undefined) return described.plan.closed ? undefined : { object, name, field };
		if (isUnset(object[field.name])) return { object, name: field.name, field };
		return field.name === name ? undefined : { object, name, field: undefined };
	};
}

interface DescribedObject {
	readonly plan: PlainPlan;
	readonly json: ExactJsonObject;
}

/** The object that a pointer leads to; undefined when the schema describes none there. */
function describedAt(record: ExactJson, root: MessagePlan, pointer: string): DescribedObject | undefined {
	const path = parsePointer(pointer);
	if (path === undefined) return undefined;
	const { place, json } = locate(record, root, path);
	const plan = objectAt(place, json);
	return plan !== undefined && isJsonObject(json) ? { plan, json } : undefined;
}

/** Whether a member of the JSON form says no more than an absent one. An empty list or map is an unset field's. */
function isUnset(json: ExactJson | undefined): boolean {
	if (json === undefined || json === null) return true;
	return typeof json === "object" && Object.keys(json).length === 0;
}
