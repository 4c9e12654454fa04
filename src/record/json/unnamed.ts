import { locate, objectAt } from "../plan/place.ts";
import type { FieldPlan, MessagePlan, PlainPlan } from "../plan/plan.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject } from "./json-value.ts";
import { parsePointer } from "./pointer.ts";

/** Maximum number of unnamed members in a record. Real records have a few dozen. */
export const MAX_UNNAMED_MEMBERS = 10_000;

/** The place of a member of `unnamed_members` in a record's JSON form. */
export interface MemberPlace {
	/** The object that contains the member. */
	readonly object: ExactJsonObject;
	/** Name of the member in `object`. When `field` is set, it is the own name of that field. */
	readonly name: string;
	/** The unset field to which the member belongs; undefined when the member stays unnamed. */
	readonly field: FieldPlan | undefined;
}

/**
 * Finds the places of unnamed members in one record. This release may have a field for a member that an older release
 * kept as unnamed.
 *
 * @returns a function from a member's JSON Pointer (RFC 6901) to its place. It returns undefined when the member cannot
 *   be there: the schema does not describe the object around it, that object is closed, the name is the
 *   discriminator's, or a field of this name is set.
 */
export function memberPlaces(record: ExactJson, plan: MessagePlan): (pointer: string) => MemberPlace | undefined {
	/** Cache of objects by their pointers, because many members belong to the same object. */
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

/** Returns the object at a pointer with its plan; undefined when the schema describes no object there. */
function describedAt(record: ExactJson, root: MessagePlan, pointer: string): DescribedObject | undefined {
	const path = parsePointer(pointer);
	if (path === undefined) return undefined;
	const { place, json } = locate(record, root, path);
	const plan = objectAt(place, json);
	return plan !== undefined && isJsonObject(json) ? { plan, json } : undefined;
}

/** Whether a member of the JSON form stands for an unset field: it is absent, null, or an empty array or object. */
function isUnset(json: ExactJson | undefined): boolean {
	if (json === undefined || json === null) return true;
	return typeof json === "object" && Object.keys(json).length === 0;
}
