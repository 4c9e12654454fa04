import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { type Fields, isFields } from "./json/json-form.ts";

/**
 * Finds the fields in which two messages of one type differ.
 *
 * @returns paths of proto field names as in google.protobuf.FieldMask, in the order of the descriptors. No path leads
 *   below another one. Paths lead into a message that both sides have. A list, a map, a well-known type and a message
 *   that only one side has are reported as a whole.
 */
export function diffMessages(desc: DescMessage, before: object, after: object): string[] {
	if (!isFields(before) || !isFields(after)) return [];
	return desc.fields.flatMap((field) => {
		const [a, b] = [fieldValue(field, before), fieldValue(field, after)];
		if (field.fieldKind === "message" && !isWellKnown(field.message) && isFields(a) && isFields(b))
			return diffMessages(field.message, a, b).map((path) => `${field.name}.${path}`);
		return sameTree(a, b) ? [] : [field.name];
	});
}

/** Returns the value of a field of a generated message. An arm that is not set has none. */
function fieldValue({ localName, oneof }: DescField, message: Fields): unknown {
	if (oneof === undefined) return message[localName];
	const selected = message[oneof.localName];
	return isFields(selected) && selected.case === localName ? selected.value : undefined;
}

/** Whether a message has a well-known type, such as Timestamp or Struct. Its values are compared as a whole. */
function isWellKnown(desc: DescMessage): boolean {
	return desc.typeName.startsWith("google.protobuf.");
}

/**
 * Whether two trees of plain objects, messages, arrays and scalars are equal in any order of members. 0 equals -0, and a
 * member that is undefined equals none.
 */
export function sameTree(a: unknown, b: unknown): boolean {
	if (a === b) return true;
	if (!isFields(a) || !isFields(b) || Array.isArray(a) !== Array.isArray(b)) return false;
	if (Array.isArray(a) && a.length !== b.length) return false;
	return (
		Object.keys(a).every((name) => sameTree(a[name], Object.hasOwn(b, name) ? b[name] : undefined)) &&
		Object.keys(b).every((name) => b[name] === undefined || Object.hasOwn(a, name))
	);
}
