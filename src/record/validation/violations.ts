import type { z } from "zod";
import { ServiceError, type Violation } from "../../errors.ts";
import type { ParsedJson } from "../json/exact-json.ts";
import { type ExactJson, MAX_FREE_FORM_DEPTH, measure, memberOf } from "../json/json-value.ts";
import { childPlace, type Location, locate, type MessagePlan, type Place, rootPlace } from "../plan.ts";
import { MAX_VIOLATIONS, type RecordSchema } from "./schema.ts";

/** Maximum length of an offending value that a violation repeats, in UTF-16 code units of its text. */
const MAX_INPUT_LENGTH = 64;

type Path = readonly (string | number)[];

/** A broken rule in pydantic's vocabulary: type, message and the values that the message mentions. */
interface Finding {
	readonly type: string;
	readonly message: string;
	readonly context?: Readonly<Record<string, unknown>>;
}

/**
 * Converts the issues that zod found in a record to violations in pydantic's vocabulary, in the order of the schema's
 * fields. Returns at most {@link MAX_VIOLATIONS}.
 */
export function violationsOf(issues: readonly z.core.$ZodIssue[], record: ExactJson, plan: MessagePlan): Violation[] {
	const violations: Violation[] = [];
	for (const [issue, at] of leafIssues(issues, [])) {
		for (const [path, finding] of findingsOf(issue, at, record, plan)) {
			if (violations.length >= MAX_VIOLATIONS) return violations;
			violations.push(violation(path, finding, record, plan));
		}
	}
	return violations;
}

/** Returns a violation, which has the offending value if the value is small and cannot be a secret. */
export function violation(path: Path, finding: Finding, record: ExactJson, plan: MessagePlan): Violation {
	const { place, json } = locate(record, plan, path);
	const shown = json !== undefined && isSmall(json) && (json === null || expectsPublicScalar(place));
	return { path, ...finding, ...(shown ? { input: json } : {}) };
}

function isSmall(json: ExactJson): json is string | number | bigint | boolean | null {
	// A number beyond the range of a double was parsed as infinity, which JSON cannot express.
	if (typeof json === "number" && !Number.isFinite(json)) return false;
	return typeof json === "object" ? json === null : String(json).length <= MAX_INPUT_LENGTH;
}

/**
 * Whether the schema expects a scalar at a place that is not secret. A string in place of an object or in free-form
 * JSON is not shown, because it may be a secret that belongs into the object.
 */
function expectsPublicScalar({ value, collection, secret }: Place): boolean {
	return value !== undefined && value.type !== "message" && collection === undefined && !secret;
}

type Issue = z.core.$ZodIssue;

/**
 * Yields the innermost issues, with their paths from the record. It replaces the issue of a union by those of the
 * option that accepts values of this type, if there is one, and the issue of an item by those inside it.
 */
function* leafIssues(issues: readonly Issue[], outer: Path): Generator<[Issue, Path]> {
	for (const issue of issues) {
		const path = [...outer, ...issue.path.map((step) => (typeof step === "symbol" ? String(step) : step))];
		const inner = innerIssues(issue);
		if (inner === undefined) yield [issue, path];
		else yield* leafIssues(inner, path);
	}
}

function innerIssues(issue: Issue): readonly Issue[] | undefined {
	if (issue.code === "invalid_element") return issue.issues;
	return issue.code === "invalid_union" ? issue.errors.find((errors) => !errors.some(isWrongType)) : undefined;
}

/** Whether an issue says that an option of a union does not accept values of this type. */
function isWrongType({ code, path }: Issue): boolean {
	return path.length === 0 && (code === "invalid_type" || code === "custom");
}

/** Yields the findings of an issue, each with its path. */
function* findingsOf(issue: Issue, path: Path, record: ExactJson, plan: MessagePlan): Generator<[Path, Finding]> {
	const { place, json } = locate(record, plan, path);
	switch (issue.code) {
		case "unrecognized_keys":
			for (const key of issue.keys) yield [[...path, key], EXTRA];
			break;
		case "invalid_key":
			// An invalid key is reported at the map.
			yield [path.slice(0, -1), valueError(issue.issues[0]?.message ?? "a key is not valid")];
			break;
		case "invalid_union":
			// No tag matches. The issue's path leads to the discriminator, the finding's to the union.
			if (issue.errors.length === 0) yield [path.slice(0, -1), wrongTag(locate(record, plan, path.slice(0, -1)))];
			else yield [path, wrongType(json, place)];
			break;
		case "too_small":
			if (Array.isArray(json))
				if (isTuple(place)) yield* itemsOfShortTuple(json, Number(issue.minimum), path, place);
				else yield [path, tooShort(json.length, Number(issue.minimum))];
			// zod checks the length of any value that has one, even if another issue says that it is not a list.
			else if (typeof json === "number" || typeof json === "bigint") yield [path, tooSmall(issue)];
			break;
		case "too_big":
			yield [path, Array.isArray(json) ? tooLong(json.length, Number(issue.maximum)) : INTEGER_SIZE];
			break;
		case "custom": {
			const { value } = place;
			// A string has the right type, so it is a value of a map that is too long. This is reported at the map.
			if (typeof json === "string" && value?.type === "string" && !value.uuid)
				yield [path.slice(0, -1), valueError(issue.message)];
			else yield [path, value?.type === "message" ? valueError(issue.message) : wrongType(json, place)];
			break;
		}
		default:
			yield [path, wrongType(json, place)];
	}
}

/** Yields the findings for a tuple with too few items. zod does not validate the items that are present. */
function* itemsOfShortTuple(json: ExactJson[], length: number, path: Path, place: Place): Generator<[Path, Finding]> {
	for (let index = 0; index < length; index++) {
		const item = childPlace(place, json, index);
		if (index >= json.length) yield [[...path, index], MISSING];
		else if (item.value?.type === "string" && typeof json[index] !== "string")
			yield [[...path, index], wrongType(json[index], item)];
	}
}

function isTuple({ value, collection }: Place): boolean {
	return collection === undefined && value?.type === "message" && value.message.form === "tuple";
}

const MISSING: Finding = { type: "missing", message: "Field required" };
const EXTRA: Finding = { type: "extra_forbidden", message: "Extra inputs are not permitted" };
const NOT_A_MESSAGE: Finding = {
	type: "model_attributes_type",
	message: "Input should be a valid dictionary or object to extract fields from",
};
const NOT_A_LIST: Finding = { type: "list_type", message: "Input should be a valid list" };
export const NOT_A_MAP: Finding = { type: "dict_type", message: "Input should be a valid dictionary" };
const INTEGER_SIZE: Finding = {
	type: "int_parsing_size",
	message: "Unable to parse input as an integer, exceeded maximum size of 64 bits signed",
};

/** A string that is not a date-time. */
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

/** Returns the finding for a value that does not have the type that its place requires. */
function wrongType(json: ExactJson | undefined, { value: expected, collection }: Place): Finding {
	if (json === undefined) return MISSING;
	if (collection !== undefined) return collection.shape === "list" ? NOT_A_LIST : NOT_A_MAP;
	const text = typeof json === "string";
	const number = typeof json === "number" || typeof json === "bigint";
	switch (expected?.type) {
		case "string":
			if (!expected.uuid) return { type: "string_type", message: "Input should be a valid string" };
			return text
				? { type: "uuid_parsing", message: "Input should be a valid UUID", context: { error: "not a UUID" } }
				: { type: "uuid_type", message: "UUID input should be a string" };
		case "integer":
			if (text)
				return {
					type: "int_parsing",
					message: "Input should be a valid integer, unable to parse string as an integer",
				};
			if (!number) return { type: "int_type", message: "Input should be a valid integer" };
			return Number.isFinite(json)
				? { type: "int_from_float", message: "Input should be a valid integer, got a number with a fractional part" }
				: NOT_FINITE;
		case "number":
		case "value":
			if (number) return NOT_FINITE;
			return text
				? { type: "float_parsing", message: "Input should be a valid number, unable to parse string as a number" }
				: { type: "float_type", message: "Input should be a valid number" };
		case "boolean":
			return text || isInteger(json)
				? { type: "bool_parsing", message: "Input should be a valid boolean, unable to interpret input" }
				: { type: "bool_type", message: "Input should be a valid boolean" };
		case "enum": {
			const names = alternatives(expected.enum.byName.keys());
			return { type: "enum", message: `Input should be ${names}`, context: { expected: names } };
		}
		case "timestamp":
			return text ? NOT_A_DATE_TIME : { type: "datetime_type", message: "Input should be a valid datetime" };
		case "message":
			return wrongMessage(expected.message);
		default:
			// Free-form JSON that is not an object although it must be one.
			return NOT_A_MAP;
	}
}

/** Whether a value is a signed 64-bit integer. */
function isInteger(json: ExactJson): boolean {
	return typeof json === "bigint" ? BigInt.asIntN(64, json) === json : Number.isInteger(json);
}

function wrongMessage(plan: MessagePlan): Finding {
	switch (plan.form) {
		case "object":
			return NOT_A_MESSAGE;
		case "union":
			return plan.tagged.size > 0
				? NOT_A_MESSAGE
				: valueError(`must be of type ${Object.keys(plan.bare).join(" or ")}`);
		case "tuple":
			return { type: "tuple_type", message: "Input should be a valid tuple" };
		case "bare":
			return plan.fields[0]?.shape === "list" ? NOT_A_LIST : NOT_A_MAP;
	}
}

/** Returns the finding for a union whose tag is missing or unknown. The sender's parser calls both `value_error`. */
function wrongTag({ place: { value }, json }: Location): Finding {
	if (json === undefined || value?.type !== "message" || value.message.form !== "union") return MISSING;
	const { discriminator, tagged } = value.message;
	const tag = memberOf(json, discriminator);
	const quoted = typeof tag === "string" && isSmall(tag) ? ` '${tag}'` : "";
	const problem = tag === undefined ? `${discriminator} is missing` : `unknown ${discriminator}${quoted}`;
	return valueError(`${problem}; it should be ${alternatives(tagged.keys())}`);
}

function alternatives(names: Iterable<string>): string {
	const quoted = Array.from(names, (name) => `'${name}'`);
	return quoted.length < 2 ? quoted.join("") : `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`;
}

function tooSmall({ minimum, inclusive }: z.core.$ZodIssueTooSmall): Finding {
	const bound = Number(minimum);
	// Only the lower limit of 64-bit integers is this low.
	if (bound <= Number.MIN_SAFE_INTEGER) return INTEGER_SIZE;
	return inclusive === true
		? {
				type: "greater_than_equal",
				message: `Input should be greater than or equal to ${bound}`,
				context: { ge: bound },
			}
		: { type: "greater_than", message: `Input should be greater than ${bound}`, context: { gt: bound } };
}

function tooShort(length: number, minimum: number): Finding {
	return {
		type: "too_short",
		message: `List should have at least ${minimum} item${minimum === 1 ? "" : "s"} after validation, not ${length}`,
		context: { field_type: "List", min_length: minimum, actual_length: length },
	};
}

function tooLong(length: number, maximum: number): Finding {
	return {
		type: "too_long",
		message: `Tuple should have at most ${maximum} items after validation, not ${length}`,
		context: { field_type: "Tuple", max_length: maximum, actual_length: length },
	};
}

/**
 * Returns at most {@link MAX_VIOLATIONS} violations of a JSON form: of its schema and of the limits of a record. There is
 * at least one if the compiled schema refuses the JSON form, whatever can be listed.
 */
export function findViolations(schema: RecordSchema, parsed: ParsedJson): Violation[] {
	const { json } = parsed;
	const limits = limitViolations(parsed, schema.plan);
	if (schema.isValid(json)) return limits;
	const violations = [...violationsOf(schema.issues(json), json, schema.plan), ...limits];
	return violations.length === 0 ? [UNLISTED] : violations.slice(0, MAX_VIOLATIONS);
}

const UNLISTED: Violation = { path: [], ...valueError("the schema refuses this value") };

/** Maximum length of a path in an error message, in UTF-16 code units. */
const MAX_SHOWN_PATH = 200;

/**
 * Returns the error for a request that breaks rules.
 *
 * @param subject what the message names in place of an empty path: `the record`
 */
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

/**
 * Returns the violations of limits that the schema does not check, because they apply everywhere in a record: lone
 * surrogates (RFC 8259, section 8.2), numbers in free-form JSON that are not finite, and free-form JSON of more than
 * {@link MAX_FREE_FORM_DEPTH} levels.
 */
function limitViolations({ json: record, size, mayHaveSurrogates }: ParsedJson, plan: MessagePlan): Violation[] {
	if (size.depth <= MAX_FREE_FORM_DEPTH && size.finite && !mayHaveSurrogates) return [];
	const violations: Violation[] = [];
	const report = (path: Path, finding: Parameters<typeof violation>[1]): void => {
		if (violations.length < MAX_VIOLATIONS) violations.push(violation(path, finding, record, plan));
	};
	/** @param isInside whether the value is inside free-form JSON or an unnamed member */
	const visit = (json: ExactJson, place: Place, path: Path, isInside: boolean): void => {
		const freeForm = isFreeForm(place);
		if (typeof json === "string" && !json.isWellFormed()) report(path, NOT_UNICODE);
		if (typeof json === "number" && !Number.isFinite(json) && freeForm) report(path, NOT_FINITE);
		if (typeof json !== "object" || json === null) return;
		if (freeForm && !isInside && measure(json).depth > MAX_FREE_FORM_DEPTH) {
			report(path, valueError(`free-form JSON nested more than ${MAX_FREE_FORM_DEPTH} levels deep`));
			return;
		}
		if (Array.isArray(json)) {
			for (const [index, item] of json.entries())
				visit(item, childPlace(place, json, index), [...path, index], freeForm);
			return;
		}
		for (const [name, member] of Object.entries(json)) {
			if (!name.isWellFormed()) report([...path, name.toWellFormed()], NOT_UNICODE);
			visit(member, childPlace(place, json, name), [...path, name], freeForm);
		}
	};
	visit(record, rootPlace(plan), [], false);
	return violations;
}

/** Whether a place is in free-form JSON or in an unnamed member. */
function isFreeForm({ value, collection }: Place): boolean {
	return value === undefined && collection === undefined;
}

const NOT_UNICODE = {
	type: "string_unicode",
	message: "Input should be a valid string, unable to parse raw data as a unicode string",
};
