import { locate, objectAt } from "../plan/place.ts";
import type { FieldPlan, MessagePlan, PlainPlan } from "../plan/plan.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, setMember } from "./json-value.ts";
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
 * The places of members that were kept by their pointers, in one record. A release that names more members than the one
 * that kept a member may have a field for it.
 */
export class MemberPlaces {
	readonly #record: ExactJson;
	readonly #plan: MessagePlan;
	/** By pointer. Many members belong to the same object. */
	readonly #objects = new Map<string, DescribedObject | undefined>();

	constructor(record: ExactJson, plan: MessagePlan) {
		this.#record = record;
		this.#plan = plan;
	}

	/**
	 * @param pointer JSON Pointer (RFC 6901) of the member
	 * @returns undefined when no such member can stand there: the pointer does not lead to an object that the schema
	 *   describes, or the object is closed, or a field of this name is set
	 */
	find(pointer: string): MemberPlace | undefined {
		const [name] = parsePointer(pointer.slice(pointer.lastIndexOf("/"))) ?? [];
		if (name === undefined) return undefined;
		const described = this.#object(pointer.slice(0, pointer.lastIndexOf("/")));
		if (described === undefined || described.plan.discriminator?.name === name) return undefined;
		const { json: object, plan } = described;
		const field = plan.members.get(name);
		if (field === undefined) return plan.closed ? undefined : { object, name, field };
		if (isUnset(object[field.name])) return { object, name, field };
		return field.name === name ? undefined : { object, name, field: undefined };
	}

	/** The object that a pointer leads to; undefined when the schema describes none there. */
	#object(pointer: string): DescribedObject | undefined {
		const known = this.#objects.get(pointer);
		if (known !== undefined || this.#objects.has(pointer)) return known;
		const path = parsePointer(pointer);
		let described: DescribedObject | undefined;
		if (path !== undefined) {
			const { place, json } = locate(this.#record, this.#plan, path);
			const plan = objectAt(place, json);
			if (plan !== undefined && isJsonObject(json)) described = { plan, json };
		}
		this.#objects.set(pointer, described);
		return described;
	}
}

interface DescribedObject {
	readonly plan: PlainPlan;
	readonly json: ExactJsonObject;
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
