import { deriveOnce } from "../plan/derive-once.ts";
import { armOf } from "../plan/place.ts";
import {
	type FieldPlan,
	isJsonObject,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "../plan/plan.ts";
import type { ExactJson, ExactJsonObject } from "./exact-json.ts";
import { setMember, toStruct, toValue } from "./free-form.ts";
import { toPointer } from "./pointer.ts";
import { parseDateTime, parseUuid } from "./scalars.ts";

/** A generated message under construction: its type name and its fields by property. */
export type MessageFields = { readonly $typeName: string; [property: string]: unknown };

/** Takes a member that no field names, with its JSON Pointer (RFC 6901) from the record's root. */
export type KeepUnnamed = (pointer: string, json: ExactJson) => void;

/** Where the mapping is in the record. Pointers are only made for the few members that need one. */
interface Position {
	readonly path: (string | number)[];
	readonly keep: KeepUnnamed;
}

type Decode = (json: ExactJson, at: Position) => unknown;

/**
 * Derives the mapping from a record's JSON form, which the schema has accepted, to its message. Absent members get
 * their defaults, null leaves a field unset, UUIDs become lower-case with dashes.
 */
export function deriveDecoder(plan: MessagePlan): (json: ExactJson, keep: KeepUnnamed) => MessageFields {
	const decode = new DecoderBuilder().message(plan);
	return (json, keep) => {
		const message = decode(json, { path: [], keep });
		if (!isMessageFields(message)) throw new TypeError(`${plan.desc.typeName} has no message`);
		return message;
	};
}

function isMessageFields(value: unknown): value is MessageFields {
	return typeof value === "object" && value !== null && "$typeName" in value;
}

class DecoderBuilder {
	readonly #decoders = new Map<MessagePlan, Decode>();

	message(plan: MessagePlan): Decode {
		return deriveOnce(this.#decoders, plan, () => {
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

	#object(plan: PlainPlan): Decode {
		const fields = plan.fields.map((field) => {
			const decode = this.#collection(field);
			// Where no unnamed member can be below, the path is of no use.
			const needsPath = field.value.type === "message";
			return { ...field, decode, needsPath };
		});
		const { typeName } = plan.desc;
		const discriminator = plan.discriminator?.name;
		return (json, at) => {
			const message: MessageFields = { $typeName: typeName };
			if (!isJsonObject(json)) return message;
			let used = discriminator !== undefined && json[discriminator] !== undefined ? 1 : 0;
			for (const { name, property, shape, aliases, default: preset, decode, needsPath } of fields) {
				let value = json[name];
				if (value !== undefined) used++;
				if ((value === undefined || value === null) && aliases.length > 0) {
					const alias = aliasInUse(json, aliases);
					if (alias !== undefined) {
						value = json[alias];
						used++;
					}
				}
				if (value === undefined) value = preset;
				if (value === undefined || value === null) {
					message[property] = shape === "list" ? [] : shape === "map" ? {} : undefined;
				} else if (needsPath) {
					at.path.push(name);
					message[property] = decode(value, at);
					at.path.pop();
				} else message[property] = decode(value, at);
			}
			let members = 0;
			for (const _ in json) members++;
			if (members !== used) keepUnnamed(plan, json, at);
			return message;
		};
	}

	#bare(plan: PlainPlan): Decode {
		const [field] = plan.fields;
		if (field === undefined) throw new Error(`${plan.desc.typeName} has no field`);
		const decode = this.#collection(field);
		return (json, at) => ({ $typeName: plan.desc.typeName, [field.property]: decode(json, at) });
	}

	#tuple(plan: PlainPlan): Decode {
		const items = plan.fields.map(({ property, value }) => ({ property, decode: this.#value(value) }));
		return (json, at) => {
			const message: MessageFields = { $typeName: plan.desc.typeName };
			if (Array.isArray(json))
				for (const [index, { property, decode }] of items.entries())
					message[property] = decode(json[index] ?? null, at);
			return message;
		};
	}

	#union(plan: UnionPlan): Decode {
		const decoders = new Map([...plan.arms.values()].map((arm) => [arm, this.#value(arm.value)]));
		return (json, at) => {
			const arm = armOf(plan, json);
			return {
				$typeName: plan.desc.typeName,
				[plan.property]:
					arm === undefined ? { case: undefined } : { case: arm.property, value: decoders.get(arm)?.(json, at) },
			};
		};
	}

	#collection(field: FieldPlan): Decode {
		const decode = this.#value(field.value);
		const item = (token: string | number, json: ExactJson, at: Position): unknown => {
			at.path.push(token);
			const value = decode(json, at);
			at.path.pop();
			return value;
		};
		switch (field.shape) {
			case "single":
				return decode;
			case "list":
				return (json, at) => (Array.isArray(json) ? json.map((value, index) => item(index, value, at)) : []);
			case "map":
				return (json, at) => {
					const entries: Record<string, unknown> = {};
					if (isJsonObject(json))
						for (const [key, value] of Object.entries(json)) setMember(entries, key, item(key, value, at));
					return entries;
				};
		}
	}

	#value(plan: ValuePlan): Decode {
		switch (plan.type) {
			case "string":
				return plan.uuid ? (json) => parseUuid(String(json)) : (json) => json;
			case "integer":
				return (json) => (typeof json === "bigint" ? json : BigInt(Number(json)));
			case "number":
				return Number;
			case "boolean":
				return (json) => json;
			case "enum":
				return (json) => plan.enum.byName.get(String(json));
			case "timestamp":
				return (json) => parseDateTime(String(json));
			case "struct":
				return toStruct;
			case "value":
				return toValue;
			case "message":
				return this.message(plan.message);
		}
	}
}

/** The alias under which a member stands for a field whose own member is absent or null. */
function aliasInUse(json: ExactJsonObject, aliases: readonly string[]): string | undefined {
	const present = aliases.filter((alias) => Object.hasOwn(json, alias));
	return present.find((alias) => json[alias] !== null) ?? present[0];
}

function keepUnnamed(plan: PlainPlan, json: ExactJsonObject, at: Position): void {
	for (const [name, value] of Object.entries(json)) {
		if (name === plan.discriminator?.name || isInUse(plan, json, name)) continue;
		at.path.push(name);
		at.keep(toPointer(at.path), value);
		at.path.pop();
	}
}

/** Whether a field takes its value from a member. */
function isInUse(plan: PlainPlan, json: ExactJsonObject, name: string): boolean {
	const field = plan.members.get(name);
	if (field === undefined) return false;
	return field.name === name || ((json[field.name] ?? null) === null && aliasInUse(json, field.aliases) === name);
}
