import { locate, objectAt } from "../plan/place.ts";
import { type FieldPlan, isJsonObject, type MessagePlan } from "../plan/plan.ts";
import type { ExactJson, ExactJsonObject } from "./exact-json.ts";
import { setMember } from "./free-form.ts";
import { parsePointer } from "./pointer.ts";

/** Most members of a record that no field names. Real records have a few dozen. */
export const MAX_UNNAMED_MEMBERS = 10_000;

/** The place of a member in a record's JSON form. */
export interface MemberPlace {
	/** The object that the member belongs to. */
	readonly object: ExactJsonObject;
	readonly name: string;
	/** The unset field that the name stands for; undefined when the member stays one that no field names. */
	readonly field: FieldPlan | undefined;
}

/**
 * Finds the place of a member that was kept by its pointer. A release that names more members than the one that kept it
 * may have a field for it.
 *
 * @param pointer JSON Pointer (RFC 6901) of the member
 * @returns undefined when no such member can stand there: the pointer does not lead to an object that the schema
 *   describes, or the object is closed, or a field of this name is set
 */
export function placeOfMember(record: ExactJson, plan: MessagePlan, pointer: string): MemberPlace | undefined {
	const tokens = parsePointer(pointer);
	const name = tokens?.pop();
	if (tokens === undefined || name === undefined) return undefined;
	const { place, json } = locate(record, plan, tokens);
	const object = objectAt(place, json);
	if (object === undefined || !isJsonObject(json) || object.discriminator?.name === name) return undefined;
	const field = object.members.get(name);
	if (field === undefined) return object.closed ? undefined : { object: json, name, field };
	if (isUnset(json[field.name])) return { object: json, name, field };
	return field.name === name ? undefined : { object: json, name, field: undefined };
}

/** Puts a member at its place: into its field if there is one. */
export function putMember({ object, name, field }: MemberPlace, value: ExactJson): void {
	setMember(object, field?.name ?? name, value);
}

/** Whether a member of the JSON form says no more than an absent one. An empty list or map is an unset field's. */
function isUnset(json: ExactJson | undefined): boolean {
	if (json === undefined || json === null) return true;
	return typeof json === "object" && Object.keys(json).length === 0;
}
