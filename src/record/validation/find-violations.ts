import { ServiceError, type Violation } from "../../errors.ts";
import type { ParsedJson } from "../json/exact-json.ts";
import { limitViolations } from "./record-limits.ts";
import { MAX_VIOLATIONS, type RecordSchema } from "./schema.ts";
import { valueError, violationsOf } from "./violations.ts";

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
