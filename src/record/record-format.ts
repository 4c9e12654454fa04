import { create, type DescMessage } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import type { ServiceError, Violation } from "../errors.ts";
import { checkJson, type ParsedJson, parseExactJson } from "./json/exact-json.ts";
import { fromValue, jsonFormOf, messageOf } from "./json/json-form.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	memberOf,
	parsePointer,
	setMember,
} from "./json/json-value.ts";
import { parseUuid } from "./json/scalars.ts";
import { childPlace, type MessagePlan, objectAt, type Place, type PlainPlan, planMessage, rootPlace } from "./plan.ts";
import { MAX_VIOLATIONS, RecordSchema } from "./validation/schema.ts";
import { brokenRulesError, findViolations, valueError } from "./validation/violations.ts";

/**
 * Converts records between JSON and protobuf, and validates both with one schema. Built once at start. What takes a record
 * throws as `parse` does.
 */
export class RecordFormat {
	readonly plan: PlainPlan;
	readonly #schema: RecordSchema;
	/** The plan of some members of a record: any member may be missing. */
	readonly #membersPlan: PlainPlan;

	/** @param desc the record's descriptor; that of another release may have more or fewer fields */
	constructor(desc: DescMessage = ConversationInfoSchema) {
		const plan = planMessage(desc);
		if (plan.form !== "object") throw new TypeError("a record must be an object");
		this.plan = plan;
		this.#schema = new RecordSchema(plan);
		this.#membersPlan = { ...plan, fields: plan.fields.map((field) => ({ ...field, required: false })) };
	}

	/**
	 * Parses a record from JSON text: validates it, fills in the defaults and keeps the members that no field names.
	 *
	 * @throws ServiceError `invalid_record` when the text is not JSON or exceeds a limit ({@link parseExactJson}), or
	 *   when the record breaks rules; it lists at most {@link MAX_VIOLATIONS} violations
	 */
	parse(body: Buffer): ConversationInfo {
		return this.#check(parseExactJson(body));
	}

	/** Converts a record from its JSON form, as {@link parse} does. */
	fromJson(json: ExactJson): ConversationInfo {
		return this.#check(checkJson(json, true));
	}

	/**
	 * Validates a record that arrived as a message by the rules of its JSON form, and fills in the defaults. An unset
	 * nullable field stays unset, which means JSON null. A member in `unnamed_members` that the schema names is moved
	 * into its field.
	 */
	fromMessage(message: ConversationInfo): ConversationInfo {
		const json = jsonFormOf(this.plan, message);
		if (Object.keys(message.unnamedMembers).length > MAX_UNNAMED_MEMBERS) throw invalid([TOO_MANY_UNNAMED], json);
		const misplaced = this.#putUnnamed(json, message);
		if (misplaced.length > 0) throw invalid(misplaced, json);
		// The strings of a message were encoded in UTF-8, which has no lone surrogates.
		return this.#check(checkJson(json, false));
	}

	/** Converts a record to its JSON form, with the unnamed members at their places. */
	toJson(message: ConversationInfo): ExactJsonObject {
		const json = jsonFormOf(this.plan, message);
		this.#putUnnamed(json, message);
		if (!isJsonObject(json)) throw new TypeError("a record must be an object");
		return json;
	}

	/**
	 * Converts some top-level members of a record from their JSON form, as {@link fromJson} converts a whole record.
	 *
	 * @returns a message in which only these members are set, with the unnamed members in them
	 */
	membersFromJson(json: ExactJsonObject): ConversationInfo {
		return this.#pick(this.#check(checkJson(json, true), this.#membersPlan), Object.keys(json));
	}

	/** Converts some top-level members to their JSON form, as {@link toJson} converts all. Others may be null in it. */
	membersToJson(message: ConversationInfo, names: Iterable<string>): ExactJsonObject {
		return this.toJson(this.#pick(message, names));
	}

	/**
	 * Replaces a top-level member of a record, and the unnamed members in it.
	 *
	 * @param message the record, which is changed in place
	 * @param part a record with only this member; the member becomes unset when it has no value there
	 */
	replaceMember(message: ConversationInfo, name: string, part: ConversationInfo): void {
		Object.assign(message, this.#fields(part, [name]), {
			unnamedMembers: { ...unnamedIn(message, (other) => other !== name), ...part.unnamedMembers },
		});
	}

	/**
	 * Converts top-level members of a record, each independently of the others.
	 *
	 * @param bigints whether the JSON can contain bigints
	 * @returns a record with the members that have a field and are valid for it, and defaults in place of the others; and
	 *   the names of the other members
	 */
	fromMembers(members: ExactJsonObject, bigints: boolean): { record: ConversationInfo; others: readonly string[] } {
		// Nearly always all members are valid, which one validation of them together shows.
		const areValid = this.#schema.isValid(members, this.#membersPlan);
		const valid: ExactJsonObject = {};
		const others: string[] = [];
		for (const [name, member] of Object.entries(members)) {
			const field = this.plan.members.get(name);
			if (field !== undefined && (areValid || this.#schema.accepts(field, member))) setMember(valid, name, member);
			else others.push(name);
		}
		return { record: messageOf(this.plan, valid, bigints), others };
	}

	#check(parsed: ParsedJson, plan = this.plan): ConversationInfo {
		const { json, size } = parsed;
		const violations = findViolations(this.#schema, parsed, plan);
		if (violations.length > 0) throw invalid(violations, json);
		const message = messageOf(this.plan, json, size.large);
		if (Object.keys(message.unnamedMembers).length > MAX_UNNAMED_MEMBERS) throw invalid([TOO_MANY_UNNAMED], json);
		return message;
	}

	/** Returns a record with only some top-level members of another one, which it shares with that one. */
	#pick(message: ConversationInfo, names: Iterable<string>): ConversationInfo {
		const kept = new Set(names);
		return Object.assign(create(ConversationInfoSchema), this.#fields(message, kept), {
			unnamedMembers: unnamedIn(message, (name) => kept.has(name)),
		});
	}

	#fields(message: ConversationInfo, names: Iterable<string>): Readonly<Record<string, unknown>> {
		const all: Readonly<Record<string, unknown>> = message;
		const fields: Record<string, unknown> = {};
		for (const name of names) {
			const field = this.plan.members.get(name);
			if (field?.name === name) fields[field.property] = all[field.property];
		}
		return fields;
	}

	/** Puts the unnamed members into the JSON form. Returns a violation for each that has no place there. */
	#putUnnamed(json: ExactJson, message: ConversationInfo): Violation[] {
		/** By their pointers, because many members belong to the same object. */
		const objects = new Map<string, DescribedObject | undefined>();
		const violations: Violation[] = [];
		for (const [pointer, value] of Object.entries(message.unnamedMembers)) {
			const parent = pointer.slice(0, pointer.lastIndexOf("/"));
			const object = objects.getOrInsertComputed(parent, () => describedAt(json, this.plan, parent));
			const [name] = parsePointer(pointer.slice(parent.length)) ?? [];
			const placed = object && name !== undefined ? nameIn(object, name) : undefined;
			if (object !== undefined && placed !== undefined) setMember(object.json, placed, fromValue(value));
			else if (violations.length < MAX_VIOLATIONS)
				violations.push({
					path: ["unnamed_members", pointer],
					type: "value_error",
					message: "Value error, must be a JSON Pointer to a member that the schema does not name",
				});
		}
		return violations;
	}
}

/** Returns the unnamed members of a record that are in one of the top-level members to keep. */
function unnamedIn({ unnamedMembers }: ConversationInfo, keeps: (name: string) => boolean): Record<string, Value> {
	const unnamed = Object.entries(unnamedMembers);
	return Object.fromEntries(unnamed.filter(([pointer]) => keeps(parsePointer(pointer)?.[0] ?? "")));
}

/** Maximum number of unnamed members in a record. Real records have a few dozen. */
export const MAX_UNNAMED_MEMBERS = 10_000;

const TOO_MANY_UNNAMED: Violation = {
	path: [],
	...valueError(`more than ${MAX_UNNAMED_MEMBERS} members that the schema does not name`),
};

function invalid(violations: readonly Violation[], json: ExactJson): ServiceError {
	const id = memberOf(json, "id");
	return brokenRulesError(violations, "the record", typeof id === "string" ? parseUuid(id) : undefined);
}

/**
 * Returns the name of an unnamed member in an object. This release may have a field for a member that an older release
 * kept as unnamed.
 *
 * @returns undefined when it cannot be there: the object is closed, the name is the discriminator's, or a field of this
 *   name is set
 */
function nameIn({ plan, json }: DescribedObject, name: string): string | undefined {
	if (plan.discriminator?.name === name) return undefined;
	const field = plan.members.get(name);
	if (field === undefined) return plan.closed ? undefined : name;
	if (isUnset(json[field.name])) return field.name;
	return field.name === name ? undefined : name;
}

interface DescribedObject {
	readonly plan: PlainPlan;
	readonly json: ExactJsonObject;
}

function describedAt(record: ExactJson, root: MessagePlan, pointer: string): DescribedObject | undefined {
	const path = parsePointer(pointer);
	if (path === undefined) return undefined;
	let [json, place]: [ExactJson | undefined, Place] = [record, rootPlace(root)];
	for (const token of path) [json, place] = [memberOf(json, token), childPlace(place, json, token)];
	const plan = objectAt(place, json);
	return plan !== undefined && isJsonObject(json) ? { plan, json } : undefined;
}

/** Whether a member of the JSON form stands for an unset field: it is absent, null, or an empty array or object. */
function isUnset(json: ExactJson | undefined): boolean {
	if (json === undefined || json === null) return true;
	return typeof json === "object" && Object.keys(json).length === 0;
}
