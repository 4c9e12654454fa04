import { ServiceError, type Violation } from "../../errors.ts";
import type { ParsedJson } from "../json/exact-json.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	MAX_FREE_FORM_DEPTH,
	measure,
	memberOf,
} from "../json/json-value.ts";
import {
	armOf,
	type Bounds,
	type FieldPlan,
	type MessagePlan,
	type PlainPlan,
	type UnionPlan,
	type ValuePlan,
} from "../plan.ts";
import { brokenExclusions, isTooLong, MAX_VIOLATIONS, type RecordSchema } from "./schema.ts";

/** Maximum length of an offending value that a violation repeats, in UTF-16 code units of its text. */
const MAX_INPUT_LENGTH = 64;

type Path = readonly (string | number)[];

/** A broken rule in pydantic's vocabulary: type, message and the values that the message mentions. */
export interface Finding {
	readonly type: string;
	readonly message: string;
	readonly context?: Readonly<Record<string, unknown>>;
}

/** Returns a violation, which has the offending value if that is small. */
export function violation(path: Path, finding: Finding, json?: ExactJson): Violation {
	return { path, ...finding, ...(json !== undefined && isSmall(json) ? { input: json } : {}) };
}

function isSmall(json: ExactJson): json is string | number | bigint | boolean | null {
	// A number beyond the range of a double was parsed as infinity, which JSON cannot express.
	if (typeof json === "number" && !Number.isFinite(json)) return false;
	return typeof json === "object" ? json === null : String(json).length <= MAX_INPUT_LENGTH;
}

/**
 * Returns at most {@link MAX_VIOLATIONS} violations of a JSON form: of its schema, in the order of its fields, and of the
 * limits that apply everywhere: lone surrogates (RFC 8259, section 8.2), numbers that are not finite, and free-form JSON of
 * more than {@link MAX_FREE_FORM_DEPTH} levels. There is at least one if the schema refuses the JSON form.
 */
export function findViolations(schema: RecordSchema, parsed: ParsedJson, plan = schema.plan): Violation[] {
	const { json, size, mayHaveSurrogates } = parsed;
	const isValid = schema.isValid(json, plan);
	if (isValid && size.depth <= MAX_FREE_FORM_DEPTH && size.finite && !mayHaveSurrogates) return [];
	const violations = listViolations(schema, json, plan);
	if (isValid || violations.length > 0) return violations;
	return [violation([], valueError("the schema refuses this value"))];
}

/** Lists the violations of a JSON form as {@link findViolations} does. */
export function listViolations(schema: RecordSchema, json: ExactJson, plan = schema.plan): Violation[] {
	const lister = new Lister(schema);
	lister.message(plan, json, false);
	return lister.violations;
}

/** Follows a plan through a JSON form. The schema decides about single values. `secret`: inside a secret field or arm. */
class Lister {
	readonly violations: Violation[] = [];
	readonly #schema: RecordSchema;
	readonly #path: (string | number)[] = [];

	constructor(schema: RecordSchema) {
		this.#schema = schema;
	}

	/**
	 * @param json the value, if there is one
	 * @param isPublic whether it may be repeated: a string in place of an object may be a secret that belongs into it
	 */
	#report(finding: Finding, json?: ExactJson, isPublic = json === null): void {
		if (this.violations.length >= MAX_VIOLATIONS) return;
		this.violations.push(violation([...this.#path], finding, isPublic ? json : undefined));
	}

	#inside(token: string | number, visit: () => void): void {
		if (this.violations.length >= MAX_VIOLATIONS) return;
		const isName = typeof token === "string";
		this.#path.push(isName ? token.toWellFormed() : token);
		if (isName && !token.isWellFormed()) this.#report(NOT_UNICODE);
		visit();
		this.#path.pop();
	}

	message(plan: MessagePlan, json: ExactJson, secret: boolean): void {
		if (plan.form === "union") this.#union(plan, json, secret);
		else if (plan.form === "tuple") this.#tuple(plan, json, secret);
		else if (plan.form === "bare") for (const field of plan.fields) this.#collection(field, json, secret);
		else if (isJsonObject(json)) this.#object(plan, json, secret);
		else this.#report(NOT_A_MESSAGE, json);
	}

	#object(plan: PlainPlan, json: ExactJsonObject, secret: boolean): void {
		const before = this.violations.length;
		const { discriminator, members } = plan;
		const tag = discriminator && memberOf(json, discriminator.name);
		if (discriminator !== undefined && !discriminator.tags.some((known) => known === tag))
			this.#inside(discriminator.name, () => this.#report(wrongTag(discriminator.name, tag, discriminator.tags)));
		for (const field of plan.fields)
			for (const name of [field.name, ...field.aliases]) {
				const member = memberOf(json, name);
				if (member === null && field.nullable) continue;
				if (member !== undefined) this.#inside(name, () => this.#collection(field, member, secret || field.secret));
				else if (field.required) this.#inside(name, () => this.#report(MISSING));
			}
		for (const [name, member] of Object.entries(json))
			if (!members.has(name) && name !== discriminator?.name)
				this.#inside(name, () => (plan.closed ? this.#report(EXTRA, member) : this.#freeForm(member)));
		if (this.violations.length > before) return;
		for (const { field, excludes } of brokenExclusions(plan, json))
			this.#report(valueError(`${field.name} cannot be combined with a custom ${excludes.name}`));
	}

	#union(plan: UnionPlan, json: ExactJson, secret: boolean): void {
		const arm = armOf(plan, json);
		const { tagged, bare, discriminator } = plan;
		if (arm !== undefined) this.#value(arm.value, json, secret || arm.secret || typeof json !== "object");
		else if (tagged.size === 0) this.#report(valueError(`must be of type ${Object.keys(bare).join(" or ")}`), json);
		else if (!isJsonObject(json)) this.#report(NOT_A_MESSAGE, json);
		else this.#report(wrongTag(discriminator, memberOf(json, discriminator), tagged.keys()));
	}

	#tuple({ fields }: PlainPlan, json: ExactJson, secret: boolean): void {
		if (!Array.isArray(json)) this.#report(NOT_A_TUPLE, json);
		else if (json.length > fields.length) this.#report(wrongNumber("Tuple", "most", json.length, fields.length));
		else
			for (const [index, { value }] of fields.entries())
				this.#inside(index, () => {
					const item = json[index];
					if (item === undefined) this.#report(MISSING);
					else this.#value(value, item, secret);
				});
	}

	#collection(field: FieldPlan, json: ExactJson, secret: boolean): void {
		const { shape, value, minItems } = field;
		if (shape === "single") this.#value(value, json, secret);
		else if (shape === "map") this.#map(field, json, secret);
		else if (!Array.isArray(json)) this.#report(NOT_A_LIST, json);
		else {
			if (json.length < minItems) this.#report(wrongNumber("List", "least", json.length, minItems));
			for (const [index, item] of json.entries()) this.#inside(index, () => this.#value(value, item, secret));
		}
	}

	/** What is wrong with a key, or with the length of a value, is reported at the map. */
	#map({ value, keyPattern, maxValueLength }: FieldPlan, json: ExactJson, secret: boolean): void {
		if (!isJsonObject(json)) this.#report(NOT_A_MAP, json);
		else
			for (const [key, item] of Object.entries(json))
				if (keyPattern?.test(key) === false) this.#report(valueError(`keys must match ${keyPattern.source}`));
				else if (isTooLong(item, maxValueLength))
					this.#report(valueError(`values must have at most ${maxValueLength} characters`));
				else this.#inside(key, () => this.#value(value, item, secret));
	}

	#value(plan: ValuePlan, json: ExactJson, secret: boolean): void {
		if (plan.type === "message") this.message(plan.message, json, secret);
		else if (!this.#schema.acceptsValue(plan, json))
			this.#report(wrongValue(plan, json), json, json === null || (!secret && plan.type !== "struct"));
		else if (typeof json === "string" && !json.isWellFormed()) this.#report(NOT_UNICODE, json, !secret);
		else if (plan.type === "value" && plan.jsonTypes.length > 0 && isJsonObject(json))
			for (const [name, member] of Object.entries(json)) this.#inside(name, () => this.#freeForm(member));
		else this.#freeForm(json);
	}

	#freeForm(json: ExactJson): void {
		if (measure(json).depth > MAX_FREE_FORM_DEPTH)
			this.#report(valueError(`free-form JSON nested more than ${MAX_FREE_FORM_DEPTH} levels deep`));
		else this.#insideFreeForm(json);
	}

	#insideFreeForm(json: ExactJson): void {
		if (typeof json === "string" && !json.isWellFormed()) this.#report(NOT_UNICODE);
		else if (typeof json === "number" && !Number.isFinite(json)) this.#report(NOT_FINITE);
		else if (typeof json === "object" && json !== null)
			for (const [token, item] of Array.isArray(json) ? json.entries() : Object.entries(json))
				this.#inside(token, () => this.#insideFreeForm(item));
	}
}

const MISSING: Finding = { type: "missing", message: "Field required" };
const EXTRA: Finding = { type: "extra_forbidden", message: "Extra inputs are not permitted" };
const NOT_A_MESSAGE: Finding = {
	type: "model_attributes_type",
	message: "Input should be a valid dictionary or object to extract fields from",
};
const NOT_A_TUPLE: Finding = { type: "tuple_type", message: "Input should be a valid tuple" };
const NOT_A_LIST: Finding = { type: "list_type", message: "Input should be a valid list" };
export const NOT_A_MAP: Finding = { type: "dict_type", message: "Input should be a valid dictionary" };
const INTEGER_SIZE: Finding = {
	type: "int_parsing_size",
	message: "Unable to parse input as an integer, exceeded maximum size of 64 bits signed",
};

export const NOT_A_DATE_TIME: Finding = {
	type: "datetime_from_date_parsing",
	message: "Input should be a valid datetime, ISO 8601 with T",
	context: { error: "not an ISO 8601 date-time" },
};

/** `JSON.parse` reads numbers beyond the range of a double as infinity. */
const NOT_FINITE: Finding = { type: "finite_number", message: "Input should be a finite number" };

/** Returns the finding for a text that has fewer characters than `min` or more than `max`. */
export function wrongLength(text: string, min: number, max: number): Finding {
	const [type, which, name, limit] =
		text.length < min
			? ["string_too_short", "least", "min_length", min]
			: ["string_too_long", "most", "max_length", max];
	const message = `String should have at ${which} ${limit} character${limit === 1 ? "" : "s"}`;
	return { type, message, context: { [name]: limit } };
}

/** Returns the finding for a broken rule that has no type of its own in pydantic. */
export function valueError(problem: string): Finding {
	return { type: "value_error", message: `Value error, ${problem}`, context: { error: {} } };
}

/** Returns the finding for a value that is not what its place requires. */
function wrongValue(expected: Exclude<ValuePlan, { type: "message" }>, json: ExactJson): Finding {
	const text = typeof json === "string";
	const number = typeof json === "number" || typeof json === "bigint";
	const valid = (type: string, what: string): Finding => ({ type, message: `Input should be a valid ${what}` });
	switch (expected.type) {
		case "string":
			if (!expected.uuid) return valid("string_type", "string");
			if (text) return { ...valid("uuid_parsing", "UUID"), context: { error: "not a UUID" } };
			return { type: "uuid_type", message: "UUID input should be a string" };
		case "integer":
			if (text) return valid("int_parsing", "integer, unable to parse string as an integer");
			if (!number) return valid("int_type", "integer");
			if (!Number.isFinite(Number(json))) return NOT_FINITE;
			if (typeof json === "number" && !Number.isInteger(json))
				return valid("int_from_float", "integer, got a number with a fractional part");
			return isInteger(json) && (typeof json === "bigint" || Number.isSafeInteger(json))
				? tooSmall(expected)
				: INTEGER_SIZE;
		case "number":
		case "value":
			if (typeof json === "number" && !Number.isFinite(json)) return NOT_FINITE;
			if (number && expected.type === "number") return tooSmall(expected);
			if (text) return valid("float_parsing", "number, unable to parse string as a number");
			return valid("float_type", "number");
		case "boolean":
			if (text || isInteger(json)) return valid("bool_parsing", "boolean, unable to interpret input");
			return valid("bool_type", "boolean");
		case "enum": {
			const names = alternatives(expected.enum.byName.keys());
			return { type: "enum", message: `Input should be ${names}`, context: { expected: names } };
		}
		case "timestamp":
			return text ? NOT_A_DATE_TIME : valid("datetime_type", "datetime");
		case "struct":
			return NOT_A_MAP;
	}
}

/** Whether a value is a signed 64-bit integer. */
function isInteger(json: ExactJson): boolean {
	return typeof json === "bigint" ? BigInt.asIntN(64, json) === json : Number.isInteger(json);
}

/** Returns the finding for a union whose tag is missing or unknown. The sender's parser calls both `value_error`. */
function wrongTag(discriminator: string, tag: ExactJson | undefined, known: Iterable<string>): Finding {
	const quoted = typeof tag === "string" && isSmall(tag) ? ` '${tag}'` : "";
	const problem = tag === undefined ? `${discriminator} is missing` : `unknown ${discriminator}${quoted}`;
	return valueError(`${problem}; it should be ${alternatives(known)}`);
}

function alternatives(names: Iterable<string>): string {
	const quoted = Array.from(names, (name) => `'${name}'`);
	return quoted.length < 2 ? quoted.join("") : `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`;
}

function tooSmall({ gt, gte }: Partial<Bounds>): Finding {
	return gte === undefined
		? { type: "greater_than", message: `Input should be greater than ${gt}`, context: { gt } }
		: { type: "greater_than_equal", message: `Input should be greater than or equal to ${gte}`, context: { ge: gte } };
}

function wrongNumber(of: "List" | "Tuple", bound: "least" | "most", length: number, limit: number): Finding {
	const items = `item${limit === 1 ? "" : "s"}`;
	return {
		type: bound === "least" ? "too_short" : "too_long",
		message: `${of} should have at ${bound} ${limit} ${items} after validation, not ${length}`,
		context: { field_type: of, [bound === "least" ? "min_length" : "max_length"]: limit, actual_length: length },
	};
}

/** Maximum length of a path in an error message, in UTF-16 code units. */
const MAX_SHOWN_PATH = 200;

/** Returns the error for a request that breaks rules. `subject` takes the place of an empty path: `the record`. */
export function brokenRulesError(
	violations: readonly Violation[],
	subject: string,
	conversationId: string | undefined,
): ServiceError {
	const [first] = violations;
	const path = first?.path.join(".").slice(0, MAX_SHOWN_PATH) || subject;
	const place = first === undefined ? "" : ` (first: ${path}: ${first.message})`;
	const count = violations.length === 1 ? "1 rule is" : `${violations.length} rules are`;
	return new ServiceError("invalid_record", `${count} broken${place}`, { violations, conversationId });
}

const NOT_UNICODE = {
	type: "string_unicode",
	message: "Input should be a valid string, unable to parse raw data as a unicode string",
};
