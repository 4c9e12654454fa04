import { isMessage } from "@bufbuild/protobuf";
import { TimestampSchema, ValueSchema } from "@bufbuild/protobuf/wkt";
import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import { deriveDefault } from "./json/decode.ts";
import { fromValue, isNormalValue, isWithinLimits, MAX_FREE_FORM_DEPTH } from "./json/free-form.ts";
import { isWritable, parseUuid } from "./json/scalars.ts";
import { orderUnnamed } from "./json/unnamed.ts";
import { deriveOnce } from "./plan/derive-once.ts";
import { armOf } from "./plan/place.ts";
import {
	type ArmPlan,
	type EnumPlan,
	type FieldPlan,
	isJsonObject,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "./plan/plan.ts";
import { entryProblem, isExcluded, isNullWhenUnset, isWithin } from "./validation/rules.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Changes to a message that wait until all of it is known to meet the rules. */
type Changes = (() => void)[];

/**
 * Whether a value of a message certainly meets the rules, and only lacks what `changes` then do.
 *
 * @param depth levels of objects and arrays around the value in the JSON form
 */
type Check = (value: unknown, depth: number, changes: Changes) => boolean;

/** A check that leaves everything to the schema. */
const leave: Check = () => false;

/**
 * Derives what spares nearly every message the way through its JSON form: a function that brings a message that
 * certainly meets every rule to the form that it would come back in, its defaults filled in. Where it gives false, it
 * has changed nothing and says nothing: ask the schema, which also tells why. It leaves to it, beside what breaks a
 * rule, whatever the way through JSON would change in a way other than by a default: UUIDs and date-times in unusual
 * forms, unknown fields, null in place of an unset field; and nesting that is deeper than free-form JSON may be.
 */
export function deriveNormalizer(plan: MessagePlan): (message: ConversationInfo) => boolean {
	const check = new NormalizerBuilder().message(plan);
	return (message) => {
		const changes: Changes = [];
		if (!check(message, 0, changes) || !checkUnnamed(message, plan, changes)) return false;
		for (const change of changes) change();
		return true;
	};
}

function checkUnnamed(message: ConversationInfo, plan: MessagePlan, changes: Changes): boolean {
	const unnamed = message.unnamedMembers;
	const pointers = Object.keys(unnamed);
	if (pointers.length === 0) return true;
	const ordered = orderUnnamed(message, plan, unnamed);
	if (ordered === undefined) return false;
	if (ordered.some((pointer, index) => pointer !== pointers[index]))
		changes.push(() => {
			message.unnamedMembers = inOrder(unnamed, ordered);
		});
	return true;
}

function inOrder(entries: ConversationInfo["unnamedMembers"], keys: readonly string[]): typeof entries {
	const ordered: typeof entries = {};
	for (const key of keys) {
		const entry = entries[key];
		if (entry !== undefined) ordered[key] = entry;
	}
	return ordered;
}

class NormalizerBuilder {
	readonly #checks = new Map<MessagePlan, Check>();

	message(plan: MessagePlan): Check {
		return deriveOnce(this.#checks, plan, () => (plan.form === "union" ? this.#union(plan) : this.#plain(plan)));
	}

	#plain(plan: PlainPlan): Check {
		const fields = plan.fields.map((field) => this.#field(field));
		if (plan.form === "object") return hasAmbiguousAlias(plan) ? leave : compileObject(plan, fields);
		const { typeName } = plan.desc;
		const levels = plan.form === "tuple" ? 1 : 0;
		const properties = plan.fields.map(({ property }) => property);
		return (message, depth, changes) => {
			if (!isKnownMessage(message, typeName) || depth + levels > MAX_FREE_FORM_DEPTH) return false;
			return fields.every((check, index) => check(message[properties[index] ?? ""], depth + levels, changes));
		};
	}

	#union(plan: UnionPlan): Check {
		const arms = new Map([...plan.arms].map(([property, arm]) => [property, this.#arm(plan, arm)]));
		const { property } = plan;
		const { typeName } = plan.desc;
		return (message, depth, changes) => {
			if (!isKnownMessage(message, typeName)) return false;
			const oneof = message[property];
			if (!isFields(oneof) || typeof oneof.case !== "string") return false;
			return arms.get(oneof.case)?.(oneof.value, depth, changes) ?? false;
		};
	}

	/** The check of an arm; it leaves the arms alone that decode.ts would not read from what encode.ts writes of them. */
	#arm(plan: UnionPlan, arm: ArmPlan): Check {
		const check = this.#value(arm.value);
		const message = arm.value.type === "message" ? arm.value.message : undefined;
		if (arm.tag !== undefined) {
			const clash = message?.form !== "object" || message.members.has(plan.discriminator);
			return !clash && plan.tagged.get(arm.tag) === arm ? check : leave;
		}
		if (arm === plan.unknown)
			return (value, depth, changes) =>
				check(value, depth, changes) && isMessage(value, ValueSchema) && armOf(plan, fromValue(value)) === arm;
		if (message !== undefined && !(message.form === "bare" && message.fields[0]?.shape === "list")) return leave;
		return Object.values(plan.bare).includes(arm) ? check : leave;
	}

	#field(field: FieldPlan): Check {
		const check = this.#value(field.value);
		switch (field.shape) {
			case "single":
				return check;
			case "list":
				return (items, depth, changes) => {
					if (!Array.isArray(items) || items.length < field.minItems || depth >= MAX_FREE_FORM_DEPTH) return false;
					for (const item of items) if (!check(item, depth + 1, changes)) return false;
					return true;
				};
			case "map":
				return (entries, depth, changes) => {
					if (!isFields(entries) || Array.isArray(entries) || depth >= MAX_FREE_FORM_DEPTH) return false;
					for (const [key, item] of Object.entries(entries))
						if (!check(item, depth + 1, changes) || entryProblem(field, key, item) !== undefined) return false;
					return true;
				};
		}
	}

	#value(plan: ValuePlan): Check {
		switch (plan.type) {
			case "string":
				return plan.uuid
					? (value) => typeof value === "string" && parseUuid(value) === value
					: (value) => typeof value === "string";
			case "integer":
				return (value) => {
					if (typeof value !== "bigint") return false;
					const number = Number(value);
					return Number.isSafeInteger(number) && isWithin(plan, number);
				};
			case "number":
				return (value) => typeof value === "number" && Number.isFinite(value) && isWithin(plan, value);
			case "boolean":
				return (value) => typeof value === "boolean";
			case "enum": {
				const numbers = namedNumbers(plan.enum);
				return (value) => typeof value === "number" && numbers.has(value);
			}
			case "timestamp":
				return (value) => isMessage(value, TimestampSchema) && value.$unknown === undefined && isWritable(value);
			case "struct":
				return (value, depth) => isJsonObject(value) && isWithinLimits(value, MAX_FREE_FORM_DEPTH - depth);
			case "value":
				// JSON null in place of a value leaves most fields unset.
				return (value, depth) =>
					isMessage(value, ValueSchema) &&
					value.kind.case !== "nullValue" &&
					isNormalValue(value, MAX_FREE_FORM_DEPTH - depth);
			case "message":
				return this.message(plan.message);
		}
	}
}

/** The numbers that come back from their JSON names. Zero has none where it is a field's. */
function namedNumbers({ byName, byNumber }: EnumPlan): ReadonlySet<number> {
	const returning = [...byNumber].filter(([number, name]) => number !== 0 && byName.get(name) === number);
	return new Set(returning.map(([number]) => number));
}

/** Whether a member of the JSON form can be taken for an unset field, because that field's alias is its name. */
function hasAmbiguousAlias({ fields, discriminator }: PlainPlan): boolean {
	const names = new Set(fields.map(({ name }) => name));
	if (discriminator !== undefined) names.add(discriminator.name);
	return fields.some(({ aliases }) => aliases.some((alias) => names.has(alias)));
}

/** Compiles the check of a message to a function of its own, for the same reason as decode.ts does. */
function compileObject(plan: PlainPlan, fields: readonly Check[]): Check {
	const lines = plan.fields.map((field, index) => {
		const unset = ifUnset(field);
		const met = holds(field, index);
		return `value = message.${field.property};
			${unset === undefined ? `if (!(${met})) return false;` : `if (value === undefined) { ${unset} } else if (!(${met})) return false;`}`;
	});
	const defaults = plan.fields.map((field) => (isFilledIn(field) ? deriveDefault(field) : undefined));
	const fills = plan.fields.map(({ property }, index) => {
		const target = `message.${property}`;
		return defaults[index] === undefined ? "" : `if (${target} === undefined) ${target} = defaults[${index}]();`;
	});
	const typeName = JSON.stringify(plan.desc.typeName);
	const source = `return (message, depth, changes) => {
		if (message?.$typeName !== ${typeName} || message.$unknown !== undefined || depth >= ${MAX_FREE_FORM_DEPTH}) return false;
		let value, incomplete = false;
		${lines.join("\n")}
		${plan.exclusions.length === 0 ? "" : "if (excluded(message)) return false;"}
		if (incomplete) changes.push(() => { ${fills.join("\n")} });
		return true;
	};`;
	const excluded = (message: Fields): boolean =>
		plan.exclusions.some((exclusion) => {
			const { field, excludes } = exclusion;
			const other = message[excludes.property] ?? (isNullWhenUnset(excludes) ? null : undefined);
			return isExcluded(exclusion, message[field.property], other);
		});
	// The source holds nothing but names from the descriptors.
	const make = new Function("fields", "defaults", "excluded", source) as (
		fields: readonly Check[],
		defaults: readonly ((() => unknown) | undefined)[],
		exclude: typeof excluded,
	) => Check;
	return make(fields, defaults, excluded);
}

/** Source of what an unset field leads to; undefined for lists and maps, which are never unset. */
function ifUnset(field: FieldPlan): string | undefined {
	if (field.shape !== "single") return undefined;
	if (isNullWhenUnset(field)) return "";
	if (field.required) return "return false;";
	return isFilledIn(field) ? "incomplete = true;" : "";
}

function isFilledIn(field: FieldPlan): boolean {
	return field.shape === "single" && field.default !== undefined && !field.required && !isNullWhenUnset(field);
}

/** Source that tells whether a set field meets its rules. */
function holds(field: FieldPlan, index: number): string {
	const called = `fields[${index}](value, depth + 1, changes)`;
	if (field.shape !== "single") return called;
	if (field.value.type === "boolean") return 'typeof value === "boolean"';
	return field.value.type === "string" && !field.value.uuid ? 'typeof value === "string"' : called;
}

/** Whether a value is a message of a type, without fields that the type does not have. */
function isKnownMessage(value: unknown, typeName: string): value is Fields {
	return isFields(value) && value.$typeName === typeName && value.$unknown === undefined;
}

function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}
