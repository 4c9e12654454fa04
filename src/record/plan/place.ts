import { JsonType } from "../../../gen/conversations/options/v1/options_pb.js";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf } from "../json/json-value.ts";
import type { ArmPlan, FieldPlan, MessagePlan, PlainPlan, UnionPlan, ValuePlan } from "./plan.ts";

/** What the plan says about a place in a record's JSON form. */
export interface Place {
	/** Plan of the value, or of each item of `collection`; undefined in free-form JSON and in unnamed members. */
	readonly value: ValuePlan | undefined;
	/** The field whose whole list or map is at the place; undefined at an item of it and for other values. */
	readonly collection: FieldPlan | undefined;
	/** Whether the place is a secret field, or inside a secret field or arm. */
	readonly secret: boolean;
}

/** Returns the place of the whole record. */
export function rootPlace(plan: MessagePlan): Place {
	return { value: { type: "message", message: plan }, collection: undefined, secret: false };
}

/**
 * Returns the place that a member name or an array index leads to.
 *
 * @param json the value at `place`; it determines the arm of a union
 */
export function childPlace(place: Place, json: ExactJson | undefined, token: string | number): Place {
	if (place.collection !== undefined) return { ...place, collection: undefined };
	if (place.value?.type !== "message") return { value: undefined, collection: undefined, secret: place.secret };
	const { message } = place.value;
	if (message.form === "union") {
		const arm = armOf(message, json);
		const inside: Place = { value: arm?.value, collection: undefined, secret: place.secret || (arm?.secret ?? false) };
		return arm === undefined ? inside : childPlace(inside, json, token);
	}
	if (message.form === "tuple") return fieldPlace(place, message.fields[Number(token)]);
	if (message.form === "bare") return childPlace(fieldPlace(place, message.fields[0]), json, token);
	return fieldPlace(place, message.members.get(String(token)));
}

/** A place and the JSON value there. */
export interface Location {
	readonly place: Place;
	readonly json: ExactJson | undefined;
}

/** Returns the value at the end of a path through a record, and its place. */
export function locate(record: ExactJson, plan: MessagePlan, path: readonly (string | number)[]): Location {
	let json: ExactJson | undefined = record;
	let place = rootPlace(plan);
	for (const token of path) {
		place = childPlace(place, json, token);
		json = memberOf(json, String(token));
	}
	return { place, json };
}

/**
 * Converts a path that names fields by their own JSON names to a path through a record's JSON form, where the value of
 * a field may be under an alias.
 */
export function pathInJson(record: ExactJson, plan: MessagePlan, path: readonly string[]): string[] {
	let json: ExactJson | undefined = record;
	let place = rootPlace(plan);
	return path.map((token) => {
		const field = isJsonObject(json) ? objectAt(place, json)?.members.get(token) : undefined;
		const isAbsent = field?.name === token && (memberOf(json, token) ?? null) === null;
		const name = (isAbsent && isJsonObject(json) ? aliasInUse(json, field.aliases) : undefined) ?? token;
		place = childPlace(place, json, token);
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
	return value.type === "struct" || (value.type === "value" && value.jsonTypes.length === 0);
}

/** Returns the arm that the type or the discriminator of a JSON value selects; undefined when there is none. */
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
	return arm ?? (hasJsonType(union.unknownTypes, json) ? union.unknown : undefined);
}

/** Whether a JSON value is of one of the given types. An empty list accepts any value. */
export function hasJsonType(types: readonly JsonType[], json: unknown): boolean {
	if (types.length === 0) return true;
	if (isJsonObject(json)) return types.includes(JsonType.OBJECT);
	if (typeof json === "number" || typeof json === "bigint") return types.includes(JsonType.NUMBER);
	return typeof json === "string" && types.includes(JsonType.STRING);
}

/** Returns the plan of the JSON object at a place; undefined when the schema describes no object there. */
export function objectAt(place: Place, json: ExactJson | undefined): PlainPlan | undefined {
	if (place.collection !== undefined || place.value?.type !== "message") return undefined;
	const { message } = place.value;
	if (message.form !== "union") return message.form === "object" ? message : undefined;
	const arm = armOf(message, json);
	return arm === undefined ? undefined : objectAt({ ...place, value: arm.value }, json);
}

/**
 * Returns the alias that provides the value of a field whose own member is absent or null: the first whose member is
 * not null, or else the first present one.
 */
export function aliasInUse(json: ExactJsonObject, aliases: readonly string[]): string | undefined {
	const present = aliases.filter((alias) => Object.hasOwn(json, alias));
	return present.find((alias) => json[alias] !== null) ?? present[0];
}
