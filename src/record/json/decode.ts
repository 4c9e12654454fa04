import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
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
import { presentAlias } from "../validation/rules.ts";
import { setMember, toValue } from "./free-form.ts";
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

/**
 * Derives what an unset field is filled with: its default, made anew each time.
 *
 * @throws Error when the default has a member that no field names; that is a mistake in the .proto files
 */
export function deriveDefault(field: FieldPlan): () => unknown {
	const decode = new DecoderBuilder().contents(field);
	const keep: KeepUnnamed = (pointer) => {
		throw new Error(`${field.desc}: no field names ${pointer} of the default`);
	};
	const make = (): unknown => decode(field.default ?? null, { path: [], keep });
	make();
	return make;
}

function isMessageFields(value: unknown): value is MessageFields {
	return typeof value === "object" && value !== null && "$typeName" in value;
}

class DecoderBuilder {
	readonly #decoders = new Map<MessagePlan, Decode>();

	message(plan: MessagePlan): Decode {
		return deriveOnce(this.#decoders, plan, () => (plan.form === "union" ? this.#union(plan) : this.#plain(plan)));
	}

	#plain(plan: PlainPlan): Decode {
		const contents = plan.fields.map((field) => this.contents(field));
		if (plan.form === "object") return compileObject(plan, contents);
		const create = compileCreate(plan);
		const properties = plan.fields.map((field) => field.property);
		return (json, at) => {
			const message = create();
			const items = plan.form === "tuple" && Array.isArray(json) ? json : [json];
			for (const [index, item] of items.entries()) {
				const property = properties[index];
				if (property !== undefined) message[property] = contents[index]?.(item, at);
			}
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

	contents(field: FieldPlan): Decode {
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

/** Source of an object literal: an empty message of a type, with all of its properties in one order. */
function emptyMessage(plan: PlainPlan): string {
	const members = plan.fields.map(({ property, shape }) => {
		return `${property}: ${shape === "list" ? "[]" : shape === "map" ? "{}" : "undefined"}`;
	});
	return `{ ${[`$typeName: ${JSON.stringify(plan.desc.typeName)}`, ...members].join(", ")} }`;
}

function compileCreate(plan: PlainPlan): () => MessageFields {
	// The source holds nothing but names from the descriptors.
	return new Function(`return ${emptyMessage(plan)};`) as () => MessageFields;
}

/**
 * Compiles the decoder of a JSON object to a function of its own, as zod does with its object schemas: with the names
 * in its source, the engine can specialise each access to a member or a property. A loop over the fields takes about
 * twice as long.
 */
function compileObject(plan: PlainPlan, contents: readonly Decode[]): Decode {
	const fields = plan.fields.map((field, index) => {
		const name = JSON.stringify(field.name);
		const target = `message.${field.property}`;
		const alias = field.aliases.length === 0 ? "" : `if (value === undefined) value = aliased(json, ${index});`;
		const fallback = field.default === undefined ? "" : `else ${target} = contents[${index}](defaults[${index}], at);`;
		return `value = json[${name}]; ${alias}
			if (value !== undefined) { named++; if (value !== null) { ${assignment(field, index, target)} } } ${fallback}`;
	});
	const discriminator = plan.discriminator?.name;
	const source = `return (json, at) => {
		const message = ${emptyMessage(plan)};
		let value, named = ${discriminator === undefined ? "0" : `json[${JSON.stringify(discriminator)}] === undefined ? 0 : 1`};
		${fields.join("\n")}
		let members = 0;
		for (const name in json) members++;
		if (members !== named) keepOthers(json, at);
		return message;
	};`;
	const aliased = (json: JsonObject, index: number): JsonValue | undefined => {
		const alias = presentAlias(plan.fields[index], json);
		return alias === undefined ? undefined : json[alias];
	};
	const own = new Set(plan.fields.map((field) => field.name));
	if (discriminator !== undefined) own.add(discriminator);
	const keepOthers = (json: JsonObject, at: Position): void => {
		for (const name of Object.keys(json)) {
			if (own.has(name)) continue;
			const value = json[name];
			if (value === undefined || isAliasInUse(plan, json, name)) continue;
			at.path.push(name);
			at.keep(toPointer(at.path), value);
			at.path.pop();
		}
	};
	// The source holds nothing but names from the descriptors.
	const compile = new Function("contents", "defaults", "aliased", "keepOthers", source) as (
		contents: readonly Decode[],
		defaults: readonly (JsonValue | undefined)[],
		find: typeof aliased,
		keep: typeof keepOthers,
	) => Decode;
	const defaults = plan.fields.map((field) => field.default);
	return compile(contents, defaults, aliased, keepOthers);
}

/** Source that gives a field its value. */
function assignment(field: FieldPlan, index: number, target: string): string {
	const decoded = `${target} = contents[${index}](value, at);`;
	if (field.shape !== "single" || field.value.type === "message")
		return `at.path.push(${JSON.stringify(field.name)}); ${decoded} at.path.pop();`;
	switch (field.value.type) {
		case "string":
			return field.value.uuid ? decoded : `${target} = value;`;
		case "number":
		case "boolean":
		case "struct":
			return `${target} = value;`;
		default:
			return decoded;
	}
}

/** Whether a member stands for a field: under the first of its aliases while its own name is absent. */
function isAliasInUse(plan: PlainPlan, json: JsonObject, name: string): boolean {
	const field = plan.members.get(name);
	if (field === undefined || Object.hasOwn(json, field.name)) return false;
	return presentAlias(field, json) === name;
}
