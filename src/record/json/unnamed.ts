import type { JsonValue } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import { locate, objectAt } from "../plan/place.ts";
import { type FieldPlan, isJsonObject, type MessagePlan, type PlainPlan } from "../plan/plan.ts";
import { fromValue, isNormalValue, MAX_FREE_FORM_DEPTH, setMember } from "./free-form.ts";
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

type Fields = Readonly<Record<string, unknown>>;

/** What pointers with the same beginning have behind it. */
interface Branch {
	readonly children: Map<string, Branch>;
	/** The pointer that ends here. */
	pointer: string | undefined;
}

/**
 * The pointers of a message's unnamed members in the order in which decode.ts finds the members in the JSON form.
 *
 * @param message meets every other rule of the record
 * @returns undefined unless {@link placeUnnamed} certainly takes each of them, and their values are within the limits
 */
export function orderUnnamed(
	message: Fields,
	plan: MessagePlan,
	unnamed: Readonly<Record<string, Value>>,
): string[] | undefined {
	const root: Branch = { children: new Map(), pointer: undefined };
	for (const [pointer, value] of Object.entries(unnamed)) {
		const tokens = parsePointer(pointer);
		// Each token leads one level of objects and arrays down.
		if (tokens === undefined || !isNormalValue(value, MAX_FREE_FORM_DEPTH - tokens.length)) return undefined;
		let branch = root;
		for (const token of tokens) {
			let next = branch.children.get(token);
			if (next === undefined) {
				next = { children: new Map(), pointer: undefined };
				branch.children.set(token, next);
			}
			branch = next;
		}
		branch.pointer = pointer;
	}
	const ordered: string[] = [];
	return collectInMessage(root, plan, message, ordered) ? ordered : undefined;
}

/** Gathers the pointers of a branch; false unless each certainly leads to a place for a member. */
function collectInMessage(branch: Branch, plan: MessagePlan, message: Fields, into: string[]): boolean {
	if (branch.pointer !== undefined) return false;
	switch (plan.form) {
		case "object":
			return collectInObject(branch, plan, message, into);
		case "bare": {
			const [field] = plan.fields;
			return field !== undefined && collectInField(branch, field, message[field.property], into);
		}
		case "union": {
			const oneof = message[plan.property];
			if (!isFields(oneof) || typeof oneof.case !== "string") return false;
			const value = plan.arms.get(oneof.case)?.value;
			return value?.type === "message" && collectIn(branch, value.message, oneof.value, into);
		}
		case "tuple":
			return false;
	}
}

function collectInObject(branch: Branch, plan: PlainPlan, message: Fields, into: string[]): boolean {
	const own: string[] = [];
	const fields: [number, Branch][] = [];
	for (const [token, child] of branch.children) {
		if (child.pointer === undefined) fields.push([plan.fields.findIndex(({ name }) => name === token), child]);
		else if (child.children.size === 0 && isUnnamed(plan, token)) own.push(child.pointer);
		else return false;
	}
	fields.sort(([a], [b]) => a - b);
	for (const [index, child] of fields) {
		const field = plan.fields[index];
		if (field === undefined || !collectInField(child, field, message[field.property], into)) return false;
	}
	for (const pointer of own) into.push(pointer);
	return true;
}

/** Whether an object certainly takes a member that no field names, and keeps it in the order in which it was put in. */
function isUnnamed(plan: PlainPlan, name: string): boolean {
	// The engine moves names that are array indexes to an object's beginning.
	return !plan.closed && name !== plan.discriminator?.name && !plan.members.has(name) && !/^\d+$/.test(name);
}

function collectInField(branch: Branch, field: FieldPlan, value: unknown, into: string[]): boolean {
	if (field.value.type !== "message" || branch.pointer !== undefined) return false;
	const { message } = field.value;
	if (field.shape === "single") return collectIn(branch, message, value, into);
	if (!isFields(value)) return false;
	let found = 0;
	// The keys of an array are its indexes.
	for (const [key, item] of Object.entries(value)) {
		const child = branch.children.get(key);
		if (child === undefined) continue;
		found++;
		if (!collectIn(child, message, item, into)) return false;
	}
	return found === branch.children.size;
}

function collectIn(branch: Branch, plan: MessagePlan, message: unknown, into: string[]): boolean {
	return isFields(message) && collectInMessage(branch, plan, message, into);
}

function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}
