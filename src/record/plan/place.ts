import { JsonType } from "../../../gen/conversations/options/v1/options_pb.js";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf } from "../json/json-value.ts";
import type { ArmPlan, FieldPlan, MessagePlan, PlainPlan, UnionPlan, ValuePlan } from "./plan.ts";

/** What the plan knows of a place in a record's JSON form. */
export interface Place {
	/** How the value at the place stands in JSON; undefined in free-form JSON and below unnamed members. */
	readonly value: ValuePlan | undefined;
	/** The field whose list or map is at the place, when the place is not one of its items. */
	readonly collection: FieldPlan | undefined;
	/** Whether the place is a secret field's or below one. */
	readonly secret: boolean;
}

/** The place of the whole record. */
export function rootPlace(plan: MessagePlan): Place {
	return { value: { type: "message", message: plan }, collection: undefined, secret: false };
}

/**
 * The place that a member name or an array index leads to.
 *
 * @param json what is at `place`; tells which arm of a union it is
 */
export function step(place: Place, json: ExactJson | undefined, token: string | number): Place {
	if (place.collection !== undefined) return { ...place, collection: undefined };
	if (place.value?.type !== "message") return { value: undefined, collection: undefined, secret: place.secret };
	const { message } = place.value;
	if (message.form === "union") {
		const arm = armOf(message, json);
		const inside: Place = { value: arm?.value, collection: undefined, secret: place.secret || (arm?.secret ?? false) };
		return arm === undefined ? inside : step(inside, json, token);
	}
	if (message.form === "tuple") return fieldPlace(place, message.fields[Number(token)]);
	if (message.form === "bare") return step(fieldPlace(place, message.fields[0]), json, token);
	return fieldPlace(place, message.members.get(String(token)));
}

/** A place with the JSON value that is there. */
export interface Location {
	readonly place: Place;
	readonly json: ExactJson | undefined;
}

/** What is at the end of a path through a record, and what the plan knows of that place. */
export function locate(record: ExactJson, plan: MessagePlan, path: readonly (string | number)[]): Location {
	let json: ExactJson | undefined = record;
	let place = rootPlace(plan);
	for (const token of path) {
		place = step(place, json, token);
		json = memberOf(json, String(token));
	}
	return { place, json };
}

/**
 * The path in a record's JSON form that a path of field names stands for: a field's value may stand under an alias.
 */
export function pathInJson(record: ExactJson, plan: MessagePlan, path: readonly string[]): string[] {
	let json: ExactJson | undefined = record;
	let place = rootPlace(plan);
	return path.map((token) => {
		const field = isJsonObject(json) ? objectAt(place, json)?.members.get(token) : undefined;
		const isAbsent = field?.name === token && (memberOf(json, token) ?? null) === null;
		const name = (isAbsent && isJsonObject(json) ? aliasInUse(json, field.aliases) : undefined) ?? token;
		place = step(place, json, token);
		json = memberOf(json, name);
		return name;
	});
}

function fieldPlace(place: Place, field: FieldPlan | undefined): Place {
	return {
		value: field === undefined || isFreeForm(field.value) ? undefined : field.value,
		collection: field === undefined || field.shape === "single" ? undefined : field,
		secret: place.secret || (field?.secret ?? false),
	};
}

function isFreeForm(value: ValuePlan): boolean {
	return value.type === "struct" || (value.type === "value" && value.sorts.length === 0);
}

/** The arm of a union that a JSON value is, or undefined when it is none. */
export function armOf(union: UnionPlan, json: unknown): ArmPlan | undefined {
	const { bare, discriminator, tagged } = union;
	let arm: ArmPlan | undefined;
	switch (typeof json) {
		case "string":
			arm = bare.string;
			break;
		case "number":
		case "bigint":
			arm = bare.number;
			break;
		case "boolean":
			arm = bare.boolean;
			break;
		default:
			if (Array.isArray(json)) arm = bare.array;
			else if (isJsonObject(json) && Object.hasOwn(json, discriminator)) {
				const tag = json[discriminator];
				if (typeof tag === "string") arm = tagged.get(tag);
			}
	}
	return arm ?? (isOfSort(union.unknownTypes, json) ? union.unknown : undefined);
}

/** Whether a JSON value is of one of some sorts; without any, all JSON is. */
export function isOfSort(sorts: readonly JsonType[], json: unknown): boolean {
	if (sorts.length === 0) return true;
	if (isJsonObject(json)) return sorts.includes(JsonType.OBJECT);
	if (typeof json === "number" || typeof json === "bigint") return sorts.includes(JsonType.NUMBER);
	return typeof json === "string" && sorts.includes(JsonType.STRING);
}

/** The plan of the JSON object at a place; undefined when the schema describes none there. */
export function objectAt(place: Place, json: ExactJson | undefined): PlainPlan | undefined {
	if (place.collection !== undefined || place.value?.type !== "message") return undefined;
	const { message } = place.value;
	if (message.form !== "union") return message.form === "object" ? message : undefined;
	const arm = armOf(message, json);
	return arm === undefined ? undefined : objectAt({ ...place, value: arm.value }, json);
}

/** The alias under which a member stands for a field whose own member is absent or null. */
export function aliasInUse(json: ExactJsonObject, aliases: readonly string[]): string | undefined {
	const present = aliases.filter((alias) => Object.hasOwn(json, alias));
	return present.find((alias) => json[alias] !== null) ?? present[0];
}
