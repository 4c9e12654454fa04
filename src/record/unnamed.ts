import type { JsonValue } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import { fromValue, setMember } from "./free-form.ts";
import { locate, objectAt } from "./place.ts";
import { isJsonObject, type MessagePlan } from "./plan.ts";
import { parsePointer } from "./pointer.ts";

/**
 * Puts a member that no field names at its place in a record's JSON form.
 *
 * @param pointer JSON Pointer (RFC 6901) of the member
 * @returns whether the pointer leads to such a place: a member of an object that the schema describes, leaves open and
 *   does not name the member of. Nothing is changed otherwise.
 */
export function placeUnnamed(record: JsonValue, plan: MessagePlan, pointer: string, value: Value): boolean {
	const tokens = parsePointer(pointer);
	const name = tokens?.pop();
	if (tokens === undefined || name === undefined) return false;
	const { place, json } = locate(record, plan, tokens);
	const object = objectAt(place, json);
	if (object === undefined || !isJsonObject(json) || object.closed || object.discriminator?.name === name) return false;
	const field = object.members.get(name);
	if (field !== undefined && (field.name === name || !Object.hasOwn(json, field.name))) return false;
	setMember(json, name, fromValue(value));
	return true;
}
