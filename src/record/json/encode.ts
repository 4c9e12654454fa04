import { isMessage } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence, TimestampSchema, ValueSchema } from "@bufbuild/protobuf/wkt";
import { deriveOnce } from "../../protobuf/derive-once.ts";
import { type Fields, isFields } from "../../protobuf/fields.ts";
import type { FieldPlan, MessagePlan, PlainPlan, UnionPlan, ValuePlan } from "../plan/plan.ts";
import { fromValue } from "./free-form.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, setMember } from "./json-value.ts";
import { formatDateTime } from "./scalars.ts";

type Encode = (value: unknown) => ExactJson;

/**
 * Derives the conversion of a message to its JSON form, the reverse of decode.ts. A value that breaks a rule (an enum
 * number without a name, a union with no arm) is written in a form that the schema refuses, so that the schema can also
 * validate messages.
 */
export function deriveEncoder(plan: MessagePlan): (message: Fields) => ExactJson {
	return new EncoderBuilder().message(plan);
}

class EncoderBuilder {
	readonly #encoders = new Map<MessagePlan, Encode>();

	message(plan: MessagePlan): Encode {
		return deriveOnce(this.#encoders, plan, () => {
			switch (plan.form) {
				case "union":
					return this.#union(plan);
				case "tuple":
					return this.#tuple(plan);
				case "bare":
					return this.#bare(plan);
				case "object":
					return this.#object(plan);
			}
		});
	}

	#object(plan: PlainPlan): Encode {
		const fields = plan.fields.map((field) => ({
			name: field.name,
			property: field.property,
			encode: this.#collection(field),
			unset: unsetValue(field),
			isNull: field.nullable && !field.omitNull,
		}));
		return (message) => {
			const json: ExactJsonObject = {};
			if (!isFields(message)) return json;
			for (const { name, property, encode, unset, isNull } of fields) {
				const value = message[property];
				if (value !== undefined && value !== unset) json[name] = encode(value);
				else if (isNull) json[name] = null;
			}
			return json;
		};
	}

	#bare(plan: PlainPlan): Encode {
		const [field] = plan.fields;
		if (field === undefined) throw new Error(`${plan.desc.typeName} has no field`);
		const encode = this.#collection(field);
		return (message) => (isFields(message) ? encode(message[field.property]) : null);
	}

	#tuple(plan: PlainPlan): Encode {
		const fields = plan.fields.map(({ property, value }) => ({ property, encode: this.#value(value) }));
		return (message) => {
			const items: ExactJson[] = [];
			// An unset item ends the tuple, so that the schema reports it as missing.
			for (const { property, encode } of fields) {
				const value = isFields(message) ? message[property] : undefined;
				if (value === undefined) break;
				items.push(encode(value));
			}
			return items;
		};
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

	#collection(field: FieldPlan): Encode {
		const encode = this.#value(field.value);
		switch (field.shape) {
			case "single":
				return encode;
			case "list":
				return (items) => (Array.isArray(items) ? items.map((item) => encode(item)) : []);
			case "map":
				return (entries) => {
					const json: ExactJsonObject = {};
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
				return integer;
			case "enum":
				return (value) => (typeof value === "number" ? (plan.enum.byNumber.get(value) ?? value) : null);
			case "timestamp":
				return (value) => (isMessage(value, TimestampSchema) ? formatDateTime(value) : null);
			case "value":
				return (value) => (isMessage(value, ValueSchema) ? fromValue(value) : null);
			case "message":
				return this.message(plan.message);
		}
	}
}

/** Returns the value of a field that means the same as an unset field. */
function unsetValue({ value, shape, nullable, desc }: FieldPlan): number | string | undefined {
	// An enum's zero value has no JSON name.
	if (value.type === "enum" && shape === "single") return 0;
	// A field without presence cannot be unset.
	return nullable && value.type === "string" && desc.presence === FeatureSet_FieldPresence.IMPLICIT ? "" : undefined;
}

/** Returns an integer within 2^53 as a number, and a larger one as a bigint. */
function integer(value: unknown): ExactJson {
	if (typeof value === "number") return value;
	if (typeof value !== "bigint") return null;
	const number = Number(value);
	return Number.isSafeInteger(number) ? number : value;
}

/** Returns a value that is JSON already: a string, number, boolean, or the plain object of a Struct. */
function plainJson(value: unknown): ExactJson {
	return isJsonScalar(value) || isJsonObject(value) ? value : null;
}

function isJsonScalar(value: unknown): value is string | number | boolean {
	return typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}
