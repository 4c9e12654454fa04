import type { JsonValue } from "@bufbuild/protobuf";
import type { z } from "zod";
import type { Violation } from "../../errors.ts";
import { memberOf } from "../json/free-form.ts";
import { locate, type Place } from "../plan/place.ts";
import type { MessagePlan, ValuePlan } from "../plan/plan.ts";
import type { RecordRule } from "./schema.ts";

/** Most violations that are listed for one record, which bounds the answer to a hostile one. */
export const MAX_VIOLATIONS = 10_000;
const MAX_INPUT_LENGTH = 64;

type Path = readonly (string | number)[];

/** A broken rule in pydantic's vocabulary: type, message and the values that the message speaks of. */
interface Finding {
	readonly type: string;
	readonly message: string;
	readonly context?: Readonly<Record<string, unknown>>;
}

/** Puts the issues that the schema found in a record into pydantic's words, in the order of the schema's fields. */
export function violationsOf(issues: readonly z.core.$ZodIssue[], record: JsonValue, plan: MessagePlan): Violation[] {
	const violations: Violation[] = [];
	for (const issue of issues) {
		if (violations.length >= MAX_VIOLATIONS) break;
		describe(issue, [], record, plan, violations);
	}
	return violations;
}

function describe(issue: z.core.$ZodIssue, outer: Path, record: JsonValue, plan: MessagePlan, into: Violation[]): void {
	const path = [...outer, ...issue.path.map((step) => (typeof step === "symbol" ? String(step) : step))];
	if (issue.code === "unrecognized_keys") {
		const finding = { type: "extra_forbidden", message: "Extra inputs are not permitted" };
		for (const key of issue.keys) into.push(violation([...path, key], finding, record, plan));
		return;
	}
	const rule = issue.code === "custom" ? ruleOf(issue.params) : undefined;
	if (rule?.rule === "inner") {
		describe(rule.issue, path, record, plan, into);
		return;
	}
	const value = valueAt(record, path);
	const finding =
		rule === undefined
			? findingOfIssue(issue, value, placeAt(path, record, plan).value?.type)
			: findingOfRule(rule, value);
	into.push(violation(path, finding, record, plan));
}

/** A violation with the offending value where it is small and cannot be a secret. */
export function violation(path: Path, finding: Finding, record: JsonValue, plan: MessagePlan): Violation {
	const input = valueAt(record, path);
	const shown = input !== undefined && isSmall(input) && (input === null || expectsPublicScalar(path, record, plan));
	return { path, ...finding, ...(shown ? { input } : {}) };
}

function isSmall(json: JsonValue): json is string | number | boolean | null {
	if (typeof json === "string") return json.length <= MAX_INPUT_LENGTH;
	return typeof json !== "object" || json === null;
}

function valueAt(record: JsonValue, path: Path): JsonValue | undefined {
	return path.reduce<JsonValue | undefined>((json, step) => memberOf(json, String(step)), record);
}

/**
 * Whether the schema expects a scalar at a place, and no secret. Text in place of an object or in free-form JSON is
 * not shown: it may be the secret that the object was to hold.
 */
function expectsPublicScalar(path: Path, record: JsonValue, plan: MessagePlan): boolean {
	const { value, collection, secret } = placeAt(path, record, plan);
	return value !== undefined && value.type !== "message" && collection === undefined && !secret;
}

function placeAt(path: Path, record: JsonValue, plan: MessagePlan): Place {
	return locate(record, plan, path).place;
}

function ruleOf(params: Readonly<Record<string, unknown>> | undefined): RecordRule | undefined {
	return isRecordRule(params) ? params : undefined;
}

/** Only schema.ts gives issues the code `custom`, and it gives them rules. */
function isRecordRule(params: unknown): params is RecordRule {
	return typeof params === "object" && params !== null && "rule" in params;
}

function findingOfRule(rule: Exclude<RecordRule, { rule: "inner" }>, value: JsonValue | undefined): Finding {
	if (value === undefined) return MISSING;
	switch (rule.rule) {
		case "missing":
			return MISSING;
		case "uuid":
			return typeof value === "string"
				? { type: "uuid_parsing", message: "Input should be a valid UUID", context: { error: "not a UUID" } }
				: { type: "uuid_type", message: "UUID input should be a string" };
		case "timestamp":
			return typeof value === "string"
				? {
						type: "datetime_from_date_parsing",
						message: "Input should be a valid datetime, ISO 8601 with T",
						context: { error: "not an ISO 8601 date-time" },
					}
				: { type: "datetime_type", message: "Input should be a valid datetime" };
		case "object":
			return { type: "dict_type", message: "Input should be a valid dictionary" };
		case "message":
			return NOT_A_MESSAGE;
		case "tuple":
			return { type: "tuple_type", message: "Input should be a valid tuple" };
		case "too_long":
			return {
				type: "too_long",
				message: `Tuple should have at most ${rule.limit} items after validation, not ${rule.length}`,
				context: { field_type: "Tuple", max_length: rule.limit, actual_length: rule.length },
			};
		case "enum": {
			const expected = alternatives(rule.expected);
			return { type: "enum", message: `Input should be ${expected}`, context: { expected } };
		}
		case "tag":
			return unionTag(rule.discriminator, rule.expected, value);
		case "value":
			return valueError(rule.problem);
	}
}

const MISSING: Finding = { type: "missing", message: "Field required" };
const NOT_A_MESSAGE: Finding = {
	type: "model_attributes_type",
	message: "Input should be a valid dictionary or object to extract fields from",
};

/** A rule that pydantic has no name of its own for. */
export function valueError(problem: string): Finding {
	return { type: "value_error", message: `Value error, ${problem}`, context: { error: {} } };
}

function unionTag(discriminator: string, expected: readonly string[], value: JsonValue): Finding {
	const tag = memberOf(value, discriminator);
	const quoted = `'${discriminator}'`;
	if (tag === undefined)
		return {
			type: "union_tag_not_found",
			message: `Unable to extract tag using discriminator ${quoted}`,
			context: { discriminator: quoted },
		};
	const expectedTags = expected.map((name) => `'${name}'`).join(", ");
	const shown = typeof tag === "string" && isSmall(tag) ? tag : undefined;
	return {
		type: "union_tag_invalid",
		message: `Input tag ${shown === undefined ? "" : `'${shown}' `}found using ${quoted} does not match any of the expected tags: ${expectedTags}`,
		context: {
			discriminator: quoted,
			...(shown === undefined ? {} : { tag: shown }),
			expected_tags: expectedTags,
		},
	};
}

function alternatives(names: readonly string[]): string {
	const quoted = names.map((name) => `'${name}'`);
	return quoted.length < 2 ? quoted.join("") : `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`;
}

function findingOfIssue(
	issue: z.core.$ZodIssue,
	value: JsonValue | undefined,
	type: ValuePlan["type"] | undefined,
): Finding {
	if (value === undefined) return MISSING;
	switch (issue.code) {
		case "invalid_type":
			return type === "integer" && issue.expected !== "array" ? wrongInteger(value) : wrongType(issue.expected, value);
		case "too_small":
			return tooSmall(issue, value);
		case "too_big":
			// The only upper bound is that of z.int(): integers that a double keeps exactly.
			return INTEGER_SIZE;
		default:
			return valueError("not valid");
	}
}

const INTEGER_SIZE: Finding = {
	type: "int_parsing_size",
	message: "Unable to parse input as an integer, exceeded maximum size of 2^53 - 1",
};

function wrongInteger(value: JsonValue): Finding {
	if (typeof value === "string")
		return { type: "int_parsing", message: "Input should be a valid integer, unable to parse string as an integer" };
	if (typeof value !== "number") return { type: "int_type", message: "Input should be a valid integer" };
	return Number.isFinite(value)
		? { type: "int_from_float", message: "Input should be a valid integer, got a number with a fractional part" }
		: NOT_FINITE;
}

/** `JSON.parse` reads numbers beyond the range of a double as infinity. */
export const NOT_FINITE: Finding = { type: "finite_number", message: "Input should be a finite number" };

function tooSmall(issue: z.core.$ZodIssueTooSmall, value: JsonValue): Finding {
	const minimum = Number(issue.minimum);
	if (Array.isArray(value))
		return {
			type: "too_short",
			message: `List should have at least ${minimum} item${minimum === 1 ? "" : "s"} after validation, not ${value.length}`,
			context: { field_type: "List", min_length: minimum, actual_length: value.length },
		};
	if (minimum === Number.MIN_SAFE_INTEGER) return INTEGER_SIZE;
	return issue.inclusive === true
		? {
				type: "greater_than_equal",
				message: `Input should be greater than or equal to ${minimum}`,
				context: { ge: minimum },
			}
		: { type: "greater_than", message: `Input should be greater than ${minimum}`, context: { gt: minimum } };
}

function wrongType(expected: string, value: JsonValue): Finding {
	const text = typeof value === "string";
	const number = typeof value === "number";
	switch (expected) {
		case "string":
			return { type: "string_type", message: "Input should be a valid string" };
		case "boolean":
			return text || number
				? { type: "bool_parsing", message: "Input should be a valid boolean, unable to interpret input" }
				: { type: "bool_type", message: "Input should be a valid boolean" };
		case "number":
			if (number) return NOT_FINITE;
			return text
				? { type: "float_parsing", message: "Input should be a valid number, unable to parse string as a number" }
				: { type: "float_type", message: "Input should be a valid number" };
		case "array":
			return { type: "list_type", message: "Input should be a valid list" };
		default:
			return NOT_A_MESSAGE;
	}
}
