import { hash } from "node:crypto";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import { fromValue, setMember, toValue } from "../json/free-form.ts";
import { parsePointer, toPointer } from "../json/pointer.ts";
import {
	type FieldPlan,
	isJsonObject,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "../plan/plan.ts";
import { isSecretName, SECRET_NAME_RULES } from "./secret-names.ts";

/** What stands in place of a secret that is not shown. */
export const REDACTED = "**********";

/** The forms in which a record can be read, by what its secrets look like (specification, "SecretRegistry"). */
export const secretsForms = ["redacted", "encrypted", "plaintext"] as const;
export type SecretsForm = (typeof secretsForms)[number];

/**
 * Replaces one secret.
 *
 * @param pointer JSON Pointer (RFC 6901) of the secret in the record's JSON form
 */
export type ReplaceSecret = (secret: string, pointer: string) => string;

/** Replaces every secret of a record in place. */
export type SecretWalk = (record: ConversationInfo, replace: ReplaceSecret) => void;

type Fields = Record<string, unknown>;

/** Where the walk is. Pointers are only made of the path for secrets, of which most records have few. */
interface Position {
	readonly path: (string | number)[];
	readonly replace: ReplaceSecret;
}

/** Gives back what stands in place of a value: the value itself, perhaps changed inside, or another one. */
type Walk = (value: unknown, at: Position) => unknown;

/**
 * Derives the walk over a record's secrets from its plan: the fields that debug_redact marks, and strings in free-form
 * JSON and unnamed members under a name that says so. It visits only messages that can hold one. Empty strings and
 * redacted secrets hide nothing and are left as they are.
 *
 * Messages are changed in place, free-form JSON is replaced: the record may share it with the JSON it was read from.
 */
export function deriveSecretWalk(plan: MessagePlan): SecretWalk {
	const walk = new SecretWalkBuilder().message(plan, false);
	return (record, replace) => {
		walk?.(record, { path: [], replace });
		for (const [pointer, value] of Object.entries(record.unnamedMembers)) {
			const secret = isSecretName(pointer.slice(pointer.lastIndexOf("/") + 1));
			// Nearly all unnamed members are scalars under a harmless name.
			if (!secret && value.kind.case !== "structValue" && value.kind.case !== "listValue") continue;
			const walked = walkValue(value, { path: parsePointer(pointer) ?? [pointer], replace }, secret);
			if (walked !== value) setMember(record.unnamedMembers, pointer, walked);
		}
	};
}

/**
 * A number, a safe integer above 0, that tells the places where the walk looks for secrets from those where the walk
 * of another release does: what one release has redacted, another may know more secrets of.
 */
export function secretPlacesDigest(plan: MessagePlan): number {
	const places = new Set<string>();
	const visited = new Set<MessagePlan>();
	const visit = (message: MessagePlan): void => {
		if (visited.has(message)) return;
		visited.add(message);
		const { typeName } = message.desc;
		const members =
			message.form === "union"
				? [...message.arms.values()].map((arm) => ({ ...arm, jsonSchema: false }))
				: message.fields;
		for (const { property, value, secret, jsonSchema } of members) {
			const kind = jsonSchema ? "json_schema" : value.type;
			places.add(`${typeName} ${property} ${kind}${secret ? " secret" : ""}`);
			if (value.type === "message") visit(value.message);
		}
	};
	visit(plan);
	const text = [...places].sort().concat(REDACTED, SECRET_NAME_RULES).join("\n");
	return hash("sha256", text, "buffer").readUIntBE(0, 6) + 1;
}

class SecretWalkBuilder {
	readonly #walks = {
		marked: new Map<MessagePlan, Walk | undefined>(),
		open: new Map<MessagePlan, Walk | undefined>(),
	};

	/** The walk over a message, or undefined when it holds no secret. `secret`: every string in it is one. */
	message(plan: MessagePlan, secret: boolean): Walk | undefined {
		const walks = secret ? this.#walks.marked : this.#walks.open;
		if (walks.has(plan)) return walks.get(plan);
		// A message that contains itself is taken to hold a secret until its walk is known.
		let known: Walk | undefined;
		walks.set(plan, (value, at) => (known === undefined ? value : known(value, at)));
		known = plan.form === "union" ? this.#union(plan, secret) : this.#plain(plan, secret);
		walks.set(plan, known);
		return known;
	}

	#plain(plan: PlainPlan, secret: boolean): Walk | undefined {
		const fields = plan.fields.flatMap((field, index) => {
			const walk = this.#field(field, secret || field.secret);
			const step = plan.form === "tuple" ? index : field.name;
			return walk === undefined ? [] : { walk, property: field.property, step };
		});
		if (fields.length === 0) return undefined;
		const bare = plan.form === "bare";
		return (message, at) => {
			if (!isFields(message)) return message;
			for (const { walk, property, step } of fields) {
				const value = message[property];
				if (value === undefined) continue;
				const walked = bare ? walk(value, at) : walkStep(walk, value, at, step);
				if (walked !== value) message[property] = walked;
			}
			return message;
		};
	}

	#union(plan: UnionPlan, secret: boolean): Walk | undefined {
		const arms = new Map<string, Walk>();
		for (const [property, arm] of plan.arms) {
			const walk = this.#value(arm.value, secret || arm.secret, false);
			if (walk !== undefined) arms.set(property, walk);
		}
		if (arms.size === 0) return undefined;
		return (message, at) => {
			const oneof = isFields(message) ? message[plan.property] : undefined;
			if (!isFields(oneof) || typeof oneof.case !== "string") return message;
			const walk = arms.get(oneof.case);
			if (walk !== undefined) oneof.value = walk(oneof.value, at);
			return message;
		};
	}

	#field(field: FieldPlan, secret: boolean): Walk | undefined {
		const walk = this.#value(field.value, secret, field.jsonSchema);
		if (walk === undefined || field.shape === "single") return walk;
		if (field.shape === "list")
			return (items, at) => {
				if (Array.isArray(items))
					for (const [index, item] of items.entries()) items[index] = walkStep(walk, item, at, index);
				return items;
			};
		return (entries, at) => {
			if (isFields(entries))
				for (const [key, value] of Object.entries(entries)) setMember(entries, key, walkStep(walk, value, at, key));
			return entries;
		};
	}

	#value(plan: ValuePlan, secret: boolean, jsonSchema: boolean): Walk | undefined {
		switch (plan.type) {
			case "string":
				return secret ? (value, at) => (typeof value === "string" ? replaceSecret(value, at) : value) : undefined;
			case "struct":
				if (jsonSchema && !secret) return undefined;
				return (value, at) =>
					isJsonObject(value) && (secret || hasSecretName(value)) ? walkJson(value, at, secret) : value;
			case "value":
				return (value, at) => (isValue(value) ? walkValue(value, at, secret) : value);
			case "message":
				return this.message(plan.message, secret);
			default:
				return undefined;
		}
	}
}

function walkStep(walk: Walk, value: unknown, at: Position, step: string | number): unknown {
	at.path.push(step);
	const walked = walk(value, at);
	at.path.pop();
	return walked;
}

function walkValue(value: Value, at: Position, secret: boolean): Value {
	const json = fromValue(value);
	const walked = walkJson(json, at, secret);
	return walked === json ? value : toValue(walked);
}

/** Whether any name in free-form JSON says that what is under it is a secret. */
function hasSecretName(json: JsonValue): boolean {
	if (typeof json !== "object" || json === null) return false;
	if (Array.isArray(json)) return json.some(hasSecretName);
	for (const name in json) if (isSecretName(name) || hasSecretName(json[name] ?? null)) return true;
	return false;
}

/**
 * @param secret whether a name above says that every string here is a secret
 * @returns `json` itself when nothing was replaced in it, else a copy
 */
function walkJson(json: JsonValue, at: Position, secret: boolean): JsonValue {
	if (typeof json === "string") return secret ? replaceSecret(json, at) : json;
	if (typeof json !== "object" || json === null) return json;
	if (Array.isArray(json)) {
		const walked = json.map((item, index) => walkMember(item, at, index, secret));
		return walked.some((item, index) => item !== json[index]) ? walked : json;
	}
	let copy: JsonObject | undefined;
	for (const [name, member] of Object.entries(json)) {
		const walked = walkMember(member, at, name, secret || isSecretName(name));
		if (walked === member) continue;
		// Spreading keeps the order of the members and makes `__proto__` an ordinary one.
		copy ??= { ...json };
		setMember(copy, name, walked);
	}
	return copy ?? json;
}

function walkMember(json: JsonValue, at: Position, step: string | number, secret: boolean): JsonValue {
	at.path.push(step);
	const walked = walkJson(json, at, secret);
	at.path.pop();
	return walked;
}

function replaceSecret(secret: string, { path, replace }: Position): string {
	return secret === "" || secret === REDACTED ? secret : replace(secret, toPointer(path));
}

function isFields(value: unknown): value is Fields {
	return typeof value === "object" && value !== null;
}

function isValue(value: unknown): value is Value {
	return isFields(value) && value.$typeName === "google.protobuf.Value";
}
