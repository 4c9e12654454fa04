import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import { fromValue, setMember, toValue } from "./free-form.ts";
import { type FieldPlan, isJsonObject, type MessagePlan, type ValuePlan } from "./plan.ts";
import { parsePointer, toPointer } from "./pointer.ts";
import { isSecretName } from "./secret-names.ts";

/** What stands in place of a secret that is not shown. */
export const REDACTED = "**********";

/**
 * Replaces one secret.
 *
 * @param pointer JSON Pointer (RFC 6901) of the secret in the record's JSON form
 */
export type ReplaceSecret = (secret: string, pointer: string) => string;

/** Replaces every secret of a record in place. */
export type SecretWalk = (record: ConversationInfo, replace: ReplaceSecret) => void;

type Fields = Record<string, unknown>;
type Path = readonly (string | number)[];
type Replace = (secret: string, path: Path) => string;
/** Gives back what stands in place of a value: the value itself, changed inside, or for a string the new one. */
type Walk = (value: unknown, path: Path, replace: Replace) => unknown;

/**
 * Derives the walk over a record's secrets from its plan: the fields that debug_redact marks, and strings in free-form
 * JSON and unnamed members under a name that says so. It visits only messages that can hold one. Empty strings and
 * redacted secrets hide nothing and are left as they are.
 */
export function deriveSecretWalk(plan: MessagePlan): SecretWalk {
	const walk = new SecretWalkBuilder().message(plan, false);
	return (record, replaceSecret) => {
		const replace: Replace = (secret, path) =>
			secret === "" || secret === REDACTED ? secret : replaceSecret(secret, toPointer(path));
		walk?.(record, [], replace);
		for (const [pointer, value] of Object.entries(record.unnamedMembers)) {
			const path = parsePointer(pointer) ?? [];
			setMember(record.unnamedMembers, pointer, walkValue(value, path, replace, isSecretName(path.at(-1) ?? "")));
		}
	};
}

class SecretWalkBuilder {
	readonly #walks = new Map<MessagePlan, Walk | undefined>();

	/** The walk over a message, or undefined when it holds no secret. `secret`: every string in it is one. */
	message(plan: MessagePlan, secret: boolean): Walk | undefined {
		if (secret) return this.#build(plan, true);
		if (this.#walks.has(plan)) return this.#walks.get(plan);
		// A message that contains itself is taken to hold a secret until its walk is known.
		let known: Walk | undefined;
		this.#walks.set(plan, (value, path, replace) => known?.(value, path, replace) ?? value);
		known = this.#build(plan, false);
		this.#walks.set(plan, known);
		return known;
	}

	#build(plan: MessagePlan, secret: boolean): Walk | undefined {
		if (plan.form === "union") return this.#union(plan, secret);
		const fields = plan.fields.flatMap((field) => {
			const walk = this.#field(field, secret || field.secret);
			return walk === undefined
				? []
				: { walk, property: field.property, step: plan.form === "bare" ? [] : [field.name] };
		});
		if (fields.length === 0) return undefined;
		return (message, path, replace) => {
			if (!isFields(message)) return message;
			for (const { walk, property, step } of fields) {
				const value = message[property];
				if (value !== undefined) message[property] = walk(value, [...path, ...step], replace);
			}
			return message;
		};
	}

	#union(plan: Extract<MessagePlan, { form: "union" }>, secret: boolean): Walk | undefined {
		const arms = new Map<string, Walk>();
		for (const [property, arm] of plan.arms) {
			const walk = this.#value(arm.value, secret || arm.secret, false);
			if (walk !== undefined) arms.set(property, walk);
		}
		if (arms.size === 0) return undefined;
		return (message, path, replace) => {
			const oneof = isFields(message) ? message[plan.property] : undefined;
			if (!isFields(oneof) || typeof oneof.case !== "string") return message;
			const walk = arms.get(oneof.case);
			if (walk !== undefined) oneof.value = walk(oneof.value, path, replace);
			return message;
		};
	}

	#field(field: FieldPlan, secret: boolean): Walk | undefined {
		const walk = this.#value(field.value, secret, field.jsonSchema);
		if (walk === undefined || field.shape === "single") return walk;
		if (field.shape === "list")
			return (items, path, replace) =>
				Array.isArray(items) ? items.map((item, index) => walk(item, [...path, index], replace)) : items;
		return (entries, path, replace) => {
			if (isFields(entries))
				for (const [key, value] of Object.entries(entries))
					setMember(entries, key, walk(value, [...path, key], replace));
			return entries;
		};
	}

	#value(plan: ValuePlan, secret: boolean, jsonSchema: boolean): Walk | undefined {
		switch (plan.type) {
			case "string":
				return secret
					? (value, path, replace) => (typeof value === "string" ? replace(value, path) : value)
					: undefined;
			case "struct":
				if (jsonSchema) return undefined;
				return (value, path, replace) => (isJsonObject(value) ? walkObject(value, path, replace, secret) : value);
			case "value":
				return (value, path, replace) => (isValue(value) ? walkValue(value, path, replace, secret) : value);
			case "message":
				return this.message(plan.message, secret);
			default:
				return undefined;
		}
	}
}

function walkValue(value: Value, path: Path, replace: Replace, secret: boolean): Value {
	return toValue(walkJson(fromValue(value), path, replace, secret));
}

/** @param secret whether a name above says that every string here is a secret */
function walkJson(json: JsonValue, path: Path, replace: Replace, secret: boolean): JsonValue {
	if (typeof json === "string") return secret ? replace(json, path) : json;
	if (Array.isArray(json)) return json.map((item, index) => walkJson(item, [...path, index], replace, secret));
	return isJsonObject(json) ? walkObject(json, path, replace, secret) : json;
}

function walkObject(json: JsonObject, path: Path, replace: Replace, secret: boolean): JsonObject {
	const walked: JsonObject = {};
	for (const [name, member] of Object.entries(json))
		setMember(walked, name, walkJson(member, [...path, name], replace, secret || isSecretName(name)));
	return walked;
}

function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}

function isValue(value: unknown): value is Value {
	return isFields(value) && value.$typeName === "google.protobuf.Value";
}
