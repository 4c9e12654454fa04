import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { setMember, toValue } from "./free-form.ts";
import {
	type FieldPlan,
	isJsonObject,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "./plan.ts";
import { toPointer } from "./pointer.ts";
import { parseDateTime, parseUuid } from "./scalars.ts";

/** A generated message under construction: its type name and its fields by property. */
export type MessageFields = { readonly $typeName: string; [property: string]: unknown };

/** Takes a member that no field names, with its JSON Pointer (RFC 6901) from the record's root. */
export type KeepUnnamed = (pointer: string, json: JsonValue) => void;

/** Where the mapping is in the record. Pointers are only made for the few members that need one. */
interface Position {
	readonly path: (string | number)[];
	readonly keep: KeepUnnamed;
}

type Decode = (json: JsonValue, at: Position) => unknown;
type DecodeField = (message: MessageFields, json: JsonValue, at: Position) => void;

/**
 * Derives the mapping from a record's JSON form, which the schema has accepted, to its message. Absent members get
 * their defaults, null leaves a field unset, UUIDs become lower-case with dashes.
 */
export function deriveDecoder(plan: MessagePlan): (json: JsonValue, keep: KeepUnnamed) => MessageFields {
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
		const known = this.#decoders.get(plan);
		if (known !== undefined) return known;
		// A message that contains itself finds its decoder here before it is complete.
		let complete: Decode | undefined;
		this.#decoders.set(plan, (json, at) => complete?.(json, at));
		complete = plan.form === "union" ? this.#union(plan) : this.#plain(plan);
		this.#decoders.set(plan, complete);
		return complete;
	}

	#plain(plan: PlainPlan): Decode {
		const create = deriveCreate(plan);
		if (plan.form === "bare") {
			const [only] = plan.fields.map((field) => this.#field(field, []));
			return (json, at) => {
				const message = create();
				only?.(message, json, at);
				return message;
			};
		}
		const fields = plan.fields.map((field) => this.#field(field));
		if (plan.form === "tuple") {
			return (json, at) => {
				const message = create();
				if (Array.isArray(json))
					json.forEach((item, index) => {
						fields[index]?.(message, item, at);
					});
				return message;
			};
		}
		const members = new Map(plan.fields.map((field, index) => [field.name, fields[index]]));
		const aliases = plan.fields.flatMap((field) => field.aliases.map((alias) => [alias, field.name] as const));
		const aliasOf = new Map(aliases);
		const defaults = plan.fields.filter((field) => field.default !== undefined);
		const discriminator = plan.discriminator?.name;
		return (json, at) => {
			const message = create();
			if (!isJsonObject(json)) return message;
			for (const name of Object.keys(json)) {
				const value = json[name];
				if (value === undefined || name === discriminator) continue;
				const decode = members.get(name);
				if (decode !== undefined) {
					if (value !== null) decode(message, value, at);
					continue;
				}
				const canonical = aliasOf.get(name);
				if (canonical !== undefined && isAliasInUse(json, plan, canonical, name)) {
					if (value !== null) members.get(canonical)?.(message, value, at);
				} else at.keep(toPointer([...at.path, name]), value);
			}
			for (const field of defaults) {
				if (message[field.property] === undefined && !hasMember(json, field) && field.default !== undefined)
					members.get(field.name)?.(message, field.default, at);
			}
			return message;
		};
	}

	#union(plan: UnionPlan): Decode {
		const arm = (candidate: UnionPlan["unknown"]) =>
			candidate && { property: candidate.property, decode: this.#value(candidate.value) };
		const tagged = new Map([...plan.tagged].map(([tag, candidate]) => [tag, arm(candidate)]));
		const bare = {
			string: arm(plan.bare.string),
			number: arm(plan.bare.number),
			boolean: arm(plan.bare.boolean),
			array: arm(plan.bare.array),
		};
		const unknown = arm(plan.unknown);
		const select = (json: JsonValue) => {
			if (isJsonObject(json)) {
				const tag = Object.hasOwn(json, plan.discriminator) ? json[plan.discriminator] : undefined;
				return typeof tag === "string" ? tagged.get(tag) : undefined;
			}
			if (Array.isArray(json)) return bare.array;
			if (typeof json === "string") return bare.string;
			if (typeof json === "number") return bare.number;
			return typeof json === "boolean" ? bare.boolean : undefined;
		};
		return (json, at) => {
			const selected = select(json) ?? unknown;
			return {
				$typeName: plan.desc.typeName,
				[plan.property]:
					selected === undefined ? { case: undefined } : { case: selected.property, value: selected.decode(json, at) },
			};
		};
	}

	/** @param step what the field adds to a pointer; nothing for the only field of a message without an object */
	#field(field: FieldPlan, step: readonly string[] = [field.name]): DecodeField {
		const decode = this.#contents(field);
		const { property } = field;
		if (field.shape === "single" && field.value.type !== "message") {
			return (message, json, at) => {
				message[property] = decode(json, at);
			};
		}
		return (message, json, at) => {
			at.path.push(...step);
			message[property] = decode(json, at);
			at.path.length -= step.length;
		};
	}

	#contents(field: FieldPlan): Decode {
		const decode = this.#value(field.value);
		const item = (token: string | number, json: JsonValue, at: Position): unknown => {
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
				return (json) => BigInt(Number(json));
			case "number":
			case "boolean":
				return (json) => json;
			case "enum":
				return (json) => plan.enum.byName.get(String(json));
			case "timestamp":
				return (json) => parseDateTime(String(json));
			case "struct":
				return (json) => json;
			case "value":
				return toValue;
			case "message":
				return this.message(plan.message);
		}
	}
}

/** Makes empty messages of one type. Their lists and maps are there even when they are empty. */
function deriveCreate(plan: PlainPlan): () => MessageFields {
	const { typeName } = plan.desc;
	const lists = plan.fields.filter((field) => field.shape === "list").map((field) => field.property);
	const maps = plan.fields.filter((field) => field.shape === "map").map((field) => field.property);
	return () => {
		const message: MessageFields = { $typeName: typeName };
		for (const property of lists) message[property] = [];
		for (const property of maps) message[property] = {};
		return message;
	};
}

function hasMember(json: JsonObject, field: FieldPlan): boolean {
	return Object.hasOwn(json, field.name) || field.aliases.some((alias) => Object.hasOwn(json, alias));
}

/** Whether a member under an alias stands for the field: only when no earlier name of the field is present. */
function isAliasInUse(json: JsonObject, plan: PlainPlan, canonical: string, alias: string): boolean {
	const field = plan.members.get(canonical);
	if (field === undefined || Object.hasOwn(json, canonical)) return false;
	return field.aliases.find((name) => Object.hasOwn(json, name)) === alias;
}
