import { hash } from "node:crypto";
import { isMessage } from "@bufbuild/protobuf";
import { type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import { REDACTED, USERINFO_RULES } from "../../userinfo.ts";
import { fromValue, toValue } from "../json/json-form.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isFields,
	isJsonObject,
	lastToken,
	parsePointer,
	setMember,
	toPointer,
} from "../json/json-value.ts";
import {
	type FieldPlan,
	type MessagePlan,
	onlyField,
	type PlainPlan,
	plansIn,
	type UnionPlan,
	type ValuePlan,
} from "../plan.ts";
import {
	contextOf,
	FREE_FORM_RULES,
	isSecretName,
	isSecretValue,
	MCP_SERVERS,
	PUBLIC_CONTEXT,
	SCHEMA_CONTEXT,
	SECRET_CONTEXT,
	SECRET_NAME_RULES,
	SECRET_STRINGS_CONTEXT,
	SERVERS_CONTEXT,
	type Secret,
	type SecretContext,
} from "./free-form-secrets.ts";

/** Forms in which a read returns the secrets of a record (specification, "SecretRegistry"). */
export const secretsForms = ["redacted", "encrypted", "plaintext"] as const;
export type SecretsForm = (typeof secretsForms)[number];

/** Returns the replacement of one value. `pointer` is that of the value in the record's JSON form (RFC 6901). */
export type Replace = (value: Secret, pointer: string) => Secret;

/** Visits values of a record and replaces them in place. */
export type RecordWalk = (record: ConversationInfo, replace: Replace) => void;

/** Current position of the walk. Pointers are only made for replaced values, of which most records have few. */
interface Position {
	readonly path: (string | number)[];
	readonly replace: Replace;
	/** Whether a path is known to lead to a secret, whatever the names in free-form JSON say. */
	readonly isSecret?: ((path: readonly (string | number)[]) => boolean) | undefined;
}

/** Returns the replacement of a value: the value itself, which may be changed inside, or another value. */
type Walk = (value: unknown, at: Position) => unknown;

/**
 * Derives the walk over a record's secrets from its plan. Secrets are the fields that debug_redact marks, and values in
 * free-form JSON and unnamed members by the rules of free-form-secrets.ts. The walk visits only messages that can
 * contain a secret. It skips empty strings and redacted secrets.
 *
 * Messages are changed in place. Free-form JSON is replaced by a copy, because the record may share it with its source.
 *
 * @param visitsSecrets otherwise it visits all other strings, which may contain secrets such as the userinfo of a URL
 */
export function deriveSecretWalk(plan: MessagePlan, visitsSecrets = true): RecordWalk {
	const builder = new WalkBuilder(visitsSecrets);
	const walk = builder.message(plan, false);
	const isSecretPath = deriveSecretPathTest(plan);
	const names = new Set([...plansIn(plan)].flatMap((one) => (one.form === "object" ? [...one.members.keys()] : [])));
	return (record, replace) => {
		walk?.(record, { path: [], replace });
		/** Contexts of the objects around unnamed members, by their pointers. Many members are in the same object. */
		const contexts = new Map<string, SecretContext>();
		for (const [pointer, value] of Object.entries(record.unnamedMembers)) {
			const { kind } = value;
			if (kind.case === "nullValue" || kind.case === "boolValue") continue;
			const json = kind.case === "structValue" || kind.case === "listValue" ? fromValue(value) : kind.value;
			const name = lastToken(pointer);
			const path = parsePointer(pointer) ?? [pointer];
			const parent = pointer.slice(0, pointer.lastIndexOf("/"));
			const around = contexts.getOrInsertComputed(parent, () => contextAt(plan, parsePointer(parent) ?? []));
			// An earlier release had no field for it, and this one may know it as a secret.
			const isSecret = names.has(name) ? isSecretPath : undefined;
			const context = isSecret?.(path) === true ? SECRET_CONTEXT : contextOf(around, name, json);
			const walked = builder.walkValue(value, { path, replace, isSecret }, context);
			if (walked !== value) setMember(record.unnamedMembers, pointer, walked);
		}
	};
}

/**
 * Returns a fingerprint of the rules that find secrets: a safe integer above 0. It shows whether a record was redacted
 * by other rules, by which it may still contain secrets. It depends only on these rules, so that a new field that is no
 * secret does not change it.
 */
export function redactionVersionOf(root: MessagePlan): number {
	const places: string[] = [];
	for (const plan of plansIn(root)) {
		const { typeName } = plan.desc;
		if (plan.form === "union") {
			for (const { property, secret } of plan.arms.values()) if (secret) places.push(`${typeName} ${property}`);
			continue;
		}
		if (plan.unnamedSecret) places.push(`${typeName} unnamed`);
		for (const { property, secret, jsonSchema } of plan.fields)
			if (secret || jsonSchema) places.push(`${typeName} ${property} ${secret ? "secret" : "schema"}`);
	}
	const text = [...places.sort(), REDACTED, SECRET_NAME_RULES, FREE_FORM_RULES, USERINFO_RULES, MAP_RULES].join("\n");
	return hash("sha256", text, "buffer").readUIntBE(0, 6) + 1;
}

/** Text that identifies the rule of {@link isFreeFormMap}. */
const MAP_RULES = "names in maps of free-form values decide";

class WalkBuilder {
	/** Whether the walk visits the secrets; otherwise it visits all other strings. */
	readonly #visitsSecrets: boolean;
	readonly #walks = {
		secret: new Map<MessagePlan, Walk | undefined>(),
		open: new Map<MessagePlan, Walk | undefined>(),
	};

	constructor(visitsSecrets: boolean) {
		this.#visitsSecrets = visitsSecrets;
	}

	/** Returns the walk over a message; undefined when there is nothing to visit. `secret`: all of it is secret. */
	message(plan: MessagePlan, secret: boolean): Walk | undefined {
		const walks = secret ? this.#walks.secret : this.#walks.open;
		if (walks.has(plan)) return walks.get(plan);
		// A message that contains itself is assumed to have something to visit until its walk is known.
		let known: Walk | undefined;
		walks.set(plan, (value, at) => (known === undefined ? value : known(value, at)));
		known = plan.form === "union" ? this.#union(plan, secret) : this.#plain(plan, secret);
		walks.set(plan, known);
		return known;
	}

	/** @param context of the value */
	walkValue(value: Value, at: Position, context: SecretContext): Value {
		const { kind } = value;
		switch (kind.case) {
			case "structValue":
			case "listValue": {
				const json = fromValue(value);
				const walked = this.walkJson(json, at, context);
				return walked === json ? value : toValue(walked);
			}
			case "stringValue":
			case "numberValue": {
				const walked = this.#visit(kind.value, at, context);
				return walked === kind.value ? value : toValue(walked);
			}
			default:
				return value;
		}
	}

	#plain(plan: PlainPlan, secret: boolean): Walk | undefined {
		const fields = plan.fields.flatMap((field, index) => {
			const walk = this.#collection(field, secret || field.secret);
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

	#collection(field: FieldPlan, secret: boolean): Walk | undefined {
		const walk = this.#value(field.value, secret, field.jsonSchema);
		if (field.shape === "map") return this.#map(field, walk);
		if (walk === undefined || field.shape === "single") return walk;
		return (items, at) => {
			if (Array.isArray(items))
				for (const [index, item] of items.entries()) items[index] = walkStep(walk, item, at, index);
			return items;
		};
	}

	/** @param walk of an entry's value whose key indicates no secret */
	#map(field: FieldPlan, walk: Walk | undefined): Walk | undefined {
		const named = isFreeFormMap(field) ? this.#value(field.value, true, false) : walk;
		if (walk === undefined && named === undefined) return undefined;
		return (entries, at) => {
			if (!isFields(entries)) return entries;
			for (const [key, value] of Object.entries(entries)) {
				const walkEntry = isSecretName(key) ? named : walk;
				if (walkEntry !== undefined) setMember(entries, key, walkStep(walkEntry, value, at, key));
			}
			return entries;
		};
	}

	#value(plan: ValuePlan, secret: boolean, jsonSchema: boolean): Walk | undefined {
		const context = secret ? SECRET_CONTEXT : jsonSchema ? SCHEMA_CONTEXT : PUBLIC_CONTEXT;
		switch (plan.type) {
			case "string":
				if (secret !== this.#visitsSecrets || plan.uuid) return undefined;
				return (value, at) => (typeof value === "string" ? this.#visit(value, at, context) : value);
			case "struct":
				return (value, at) => (isJsonObject(value) ? this.walkJson(value, at, context) : value);
			case "value":
				return (value, at) => (isMessage(value, ValueSchema) ? this.walkValue(value, at, context) : value);
			case "message":
				return this.message(plan.message, secret);
			default:
				return undefined;
		}
	}

	/** @returns `json` itself when nothing in it was replaced, otherwise a copy */
	walkJson(json: ExactJson, at: Position, context: SecretContext): ExactJson {
		if (json === null || typeof json === "boolean") return json;
		if (typeof json !== "object") return this.#visit(json, at, context);
		if (Array.isArray(json)) {
			const walked = json.map((item, index) => this.walkMember(item, at, index, context));
			return walked.some((item, index) => item !== json[index]) ? walked : json;
		}
		let copy: ExactJsonObject | undefined;
		for (const [name, member] of Object.entries(json)) {
			const walked = this.walkMember(member, at, name, contextOf(context, name, member));
			if (walked === member) continue;
			// Spreading keeps the order of the members and makes `__proto__` an ordinary one.
			copy ??= { ...json };
			setMember(copy, name, walked);
		}
		return copy ?? json;
	}

	/** @param context of `json` */
	walkMember(json: ExactJson, at: Position, step: string | number, context: SecretContext): ExactJson {
		at.path.push(step);
		const walked = this.walkJson(json, at, at.isSecret?.(at.path) ? SECRET_CONTEXT : context);
		at.path.pop();
		return walked;
	}

	#visit(value: Secret, { path, replace }: Position, context: SecretContext): Secret {
		if (isSecretValue(context, value) !== this.#visitsSecrets || value === "" || value === REDACTED) return value;
		return typeof value !== "string" && !this.#visitsSecrets ? value : replace(value, toPointer(path));
	}
}

const freeForm = new WalkBuilder(true);

/**
 * Replaces the secrets in a member of free-form JSON, by the rules of {@link deriveSecretWalk}.
 *
 * @param name name of the member
 * @param outer context of the object that contains the member
 * @param isSecret whether a path from that object leads to a secret, whatever the names in free-form JSON say
 * @returns `json` itself when nothing in it was replaced, otherwise a copy
 */
export function replaceSecretsInMember(
	json: ExactJson,
	name: string,
	outer: SecretContext,
	replace: Replace,
	isSecret?: Position["isSecret"],
): ExactJson {
	const at: Position = { path: [], replace, isSecret };
	return freeForm.walkMember(json, at, name, contextOf(outer, name, json));
}

/** Whether the values of a map are free-form JSON, whose names indicate secrets. */
function isFreeFormMap({ shape, value }: FieldPlan): boolean {
	if (shape !== "map") return false;
	if (value.type !== "message") return value.type === "value" || value.type === "struct";
	const { message } = value;
	return message.form === "union" && message.unknown !== undefined && message.unknownTypes.length === 0;
}

function walkStep(walk: Walk, value: unknown, at: Position, step: string | number): unknown {
	at.path.push(step);
	const walked = walk(value, at);
	at.path.pop();
	return walked;
}

/** What the plan allows at a place: a value, or a list or map of such values. */
interface Candidate {
	readonly value: ValuePlan;
	readonly collection: boolean;
}

/**
 * Returns a predicate of paths: whether the fields at a place, or on the path to it, make the value there a secret. It
 * is for values that break the schema. All arms of a union count.
 */
export function deriveSecretPathTest(plan: MessagePlan): (path: readonly (string | number)[]) => boolean {
	return (path) => {
		const tokens = path.map(String);
		const here = candidatesAt(plan, tokens);
		const outer = candidatesAt(plan, tokens.slice(0, -1)) ?? [];
		return here === undefined || here.some(hasSecretArm) || outer.some(hasSecretUnnamedMembers);
	};
}

function hasSecretArm({ value }: Candidate): boolean {
	if (value.type !== "message" || value.message.form !== "union") return false;
	return [...value.message.arms.values()].some(({ secret }) => secret);
}

/**
 * Returns the context of the object around an unnamed member. All arms of a union count, because the path does not show
 * which arm is set.
 */
function contextAt(plan: MessagePlan, path: readonly string[]): SecretContext {
	const candidates = candidatesAt(plan, path);
	if (candidates === undefined) return SECRET_CONTEXT;
	if (candidates.some(hasSecretUnnamedMembers)) return SECRET_STRINGS_CONTEXT;
	return path.at(-1) === MCP_SERVERS ? SERVERS_CONTEXT : PUBLIC_CONTEXT;
}

/** Returns what the plan allows at the end of a path; undefined when the value there is a secret. */
function candidatesAt(plan: MessagePlan, path: readonly string[]): readonly Candidate[] | undefined {
	let candidates: readonly Candidate[] = [{ value: { type: "message", message: plan }, collection: false }];
	for (const token of path) {
		const next: Candidate[] = [];
		for (const candidate of candidates) {
			if (candidate.collection) next.push({ value: candidate.value, collection: false });
			else if (candidate.value.type === "message" && !stepInto(candidate.value.message, token, next)) return undefined;
		}
		candidates = next;
	}
	return candidates;
}

/** Adds to `into` what a token leads to. Returns false when the whole value there is a secret. */
function stepInto(plan: MessagePlan, token: string, into: Candidate[]): boolean {
	if (plan.form === "union") {
		for (const { value, secret } of plan.arms.values()) {
			if (secret) continue;
			if (value.type === "message" && !stepInto(value.message, token, into)) return false;
		}
		return true;
	}
	const field = plan.form === "bare" ? onlyField(plan) : plan.members.get(token);
	if (field === undefined) return true;
	if (field.secret) return false;
	// The JSON form of a bare message is its list or map, so the token already leads to an item.
	into.push({ value: field.value, collection: plan.form !== "bare" && field.shape !== "single" });
	return true;
}

/** Whether the strings in unnamed members of a value are secrets. */
function hasSecretUnnamedMembers({ value }: Pick<Candidate, "value">): boolean {
	if (value.type !== "message") return false;
	const { message } = value;
	return message.form === "union" ? [...message.arms.values()].some(hasSecretUnnamedMembers) : message.unnamedSecret;
}
