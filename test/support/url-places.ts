import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { JsonType } from "../../gen/conversations/options/v1/options_pb.js";
import type { FieldPlan, MessagePlan, PlainPlan, ValuePlan } from "../../src/record/plan.ts";
import { completed } from "./completed.ts";
import { object, record } from "./fixtures.ts";

/** A place of the record's JSON form where a string can contain a URL with a password. */
export interface UrlPlace {
	/** Names of the members from the root of the record, for failure messages. */
	readonly name: string;
	/** Whether the place is a name of a map or of an object. There a password is not encrypted but removed. */
	readonly isName: boolean;
	/** Returns the members of a valid record with the secret as the password of a URL at the place. */
	plant(secret: string): JsonObject;
}

type Wrap = (value: JsonValue) => JsonObject;

/**
 * Returns every place of the record for a string that is no UUID, enum or date-time, in each type of message once: values
 * of fields, items of lists, names and values of maps, and free-form JSON.
 */
export function urlPlaces(plan: PlainPlan): UrlPlace[] {
	const places: UrlPlace[] = [];
	const seen = new Set<MessagePlan>();
	const add = (name: string, isName: boolean, wrap: Wrap, value: (url: string) => JsonValue): void => {
		const plant = (secret: string) => object(completed(plan, record(wrap(value(`https://user:${secret}@host/`)))));
		places.push({ name, isName, plant });
	};
	const visitValue = (value: ValuePlan, name: string, wrap: Wrap): void => {
		const takes = (type: JsonType) =>
			value.type === "value" && (value.jsonTypes.length === 0 || value.jsonTypes.includes(type));
		if (value.type === "message") visitMessage(value.message, name, wrap);
		if (value.type === "string" ? !value.uuid : takes(JsonType.STRING)) add(name, false, wrap, (url) => url);
		if (value.type !== "struct" && !takes(JsonType.OBJECT)) return;
		add(`${name} inside`, false, wrap, (url) => ({ deep: [{ text: `see ${url}` }] }));
		add(`${name} name`, true, wrap, (url) => ({ deep: [{ [url]: 1 }] }));
	};
	const visitField = (field: FieldPlan, name: string, wrap: Wrap): void => {
		const items: Record<FieldPlan["shape"], Wrap> = {
			single: wrap,
			list: (item) =>
				wrap([item, ...Array.from({ length: field.minItems }, () => item)].slice(0, Math.max(1, field.minItems))),
			map: (item) => wrap({ a: item }),
		};
		visitValue(field.value, name, items[field.shape]);
		if (field.shape === "map" && field.keyPattern === undefined && field.value.type === "string")
			add(`${name} key`, true, wrap, (url) => ({ [url]: "x" }));
	};
	const visitMessage = (message: MessagePlan, name: string, wrap: Wrap): void => {
		if (seen.size === seen.add(message).size) return;
		if (message.form === "union") {
			for (const arm of message.arms.values()) {
				const tagged: Wrap = (json) =>
					wrap(arm.tag === undefined ? json : { ...object(json), [message.discriminator]: arm.tag });
				visitValue(arm.value, arm.tag === undefined ? name : `${name}<${arm.tag}>`, tagged);
			}
			return;
		}
		if (message.form === "tuple") {
			add(name, false, wrap, (url) => message.fields.map(() => url));
			return;
		}
		for (const field of message.fields)
			if (message.form === "bare") visitField(field, name, wrap);
			else visitField(field, `${name}.${field.name}`, (json) => wrap({ [field.name]: json }));
		if (message.form === "object" && !message.closed) add(`${name}.unnamed`, false, wrap, (url) => ({ "x/y": [url] }));
	};
	visitMessage(plan, "", object);
	return places;
}
