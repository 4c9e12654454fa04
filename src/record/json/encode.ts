import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isMessage } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema, type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { deriveOnce } from "../plan/derive-once.ts";
import {
	type FieldPlan,
	isJsonObject,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "../plan/plan.ts";
import { isNullWhenUnset } from "../validation/rules.ts";
import { fromValue, setMember } from "./free-form.ts";
import { formatDateTime } from "./scalars.ts";

type Encode = (value: unknown) => JsonValue;
type Fields = Readonly<Record<string, unknown>>;

/**
 * Derives the mapping from a message to its JSON form, the reverse of decode.ts. It also writes values that break a
 * rule (an enum number without a name, a union with no arm, an integer beyond 2^53), in a form that the schema
 * refuses, so that the schema can judge messages as well.
 */
export function deriveEncoder(plan: MessagePlan): (message: Fields) => JsonValue {
	return new EncoderBuilder().message(plan);
}

class EncoderBuilder {
	readonly #encoders = new Map<MessagePlan, Encode>();

	message(plan: MessagePlan): Encode {
		return deriveOnce(this.#encoders, plan, () => (plan.form === "union" ? this.#union(plan) : this.#plain(plan)));
	}

	#plain(plan: PlainPlan): Encode {
		const fields = plan.fields.map((field) => ({ field, encode: this.#field(field) }));
		const [first] = fields;
		if (plan.form === "bare" && first !== undefined)
			return (message) => (isFields(message) ? first.encode(message[first.field.property]) : null);
		if (plan.form === "tuple")
			return (message) => {
				const items: JsonValue[] = [];
				// An unset item ends the tuple, so that the schema reports it as missing.
				for (const { field, encode } of fields) {
					const value = isFields(message) ? message[field.property] : undefined;
					if (value === undefined) break;
					items.push(encode(value));
				}
				return items;
			};
		return compileObject(
			plan,
			fields.map(({ encode }) => encode),
		);
	}

	#union(plan: UnionPlan): Encode {
		const arms = new Map([...plan.arms].map(([property, arm]) => [property, { arm, encode: this.#value(arm.value) }]));
		return (message) => {
			const oneof = isFields(message) ? message[plan.property] : undefined;
			const selected = isFields(oneof) && typeof oneof.case === "string" ? arms.get(oneof.case) : undefined;
			if (selected === undefined || !isFields(oneof)) return {};
			const json = selected.encode(oneof.value);
			if (selected.arm.tag !== undefined && isJsonObject(json)) json[plan.discriminator] = selected.arm.tag;
			return json;
		};
	}

	#field(field: FieldPlan): Encode {
		const encode = this.#value(field.value);
		switch (field.shape) {
			case "single":
				return encode;
			case "list":
				return (items) => (Array.isArray(items) ? items.map(encode) : []);
			case "map":
				return (entries) => {
					const json: JsonObject = {};
					if (isFields(entries))
						for (const [key, value] of Object.entries(entries)) setMember(json, key, encode(value));
					return json;
				};
		}
	}

	#value(plan: ValuePlan): Encode {
		switch (plan.type) {
			case "string":
			case "number":
			case "boolean":
			case "struct":
				return plainJson;
			case "integer":
				return (value) => Number(value);
			case "enum":
				return (value) => (typeof value === "number" ? (plan.enum.byNumber.get(value) ?? value) : null);
			case "timestamp":
				return (value) => (isTimestamp(value) ? formatDateTime(value) : null);
			case "value":
				return (value) => (isValue(value) ? fromValue(value) : null);
			case "message":
				return this.message(plan.message);
		}
	}
}

/** Compiles the encoder of a JSON object to a function of its own, for the same reason as decode.ts does. */
function compileObject(plan: PlainPlan, contents: readonly Encode[]): Encode {
	const lines = plan.fields.map((field, index) => {
		const member = `json[${JSON.stringify(field.name)}]`;
		// An enum's zero value has no JSON name and says no more than an unset field.
		const set =
			field.value.type === "enum" && field.shape === "single"
				? "value !== undefined && value !== 0"
				: "value !== undefined";
		const absent = isNullWhenUnset(field) ? ` else ${member} = null;` : "";
		return `value = message.${field.property}; if (${set}) ${member} = ${encoded(field, index)};${absent}`;
	});
	// The source holds nothing but names from the descriptors.
	const compile = new Function(
		"contents",
		`return (message) => { const json = {}; let value; ${lines.join("\n")} return json; };`,
	) as (contents: readonly Encode[]) => Encode;
	return compile(contents);
}

/** Source of the JSON value of a set field. */
function encoded(field: FieldPlan, index: number): string {
	const plain = ["string", "number", "boolean", "struct"].includes(field.value.type);
	return field.shape === "single" && plain ? "value" : `contents[${index}](value)`;
}

function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}

function isTimestamp(value: unknown): value is Timestamp {
	return isMessage(value, TimestampSchema);
}

function isValue(value: unknown): value is Value {
	return isMessage(value, ValueSchema);
}

/** Strings, numbers, booleans and the plain objects that stand for google.protobuf.Struct are JSON already. */
function plainJson(value: unknown): JsonValue {
	return isJsonScalar(value) || isJsonObject(value) ? value : null;
}

function isJsonScalar(value: unknown): value is string | number | boolean {
	return typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}
