import { ServiceError, type Violation } from "../../errors.ts";
import type { ParsedJson } from "../json/exact-json.ts";
import { limitViolations } from "./record-limits.ts";
import { MAX_VIOLATIONS, type RecordSchema } from "./schema.ts";
import { violationsOf } from "./violations.ts";

/** What is wrong with a JSON form, by its schema and by the limits of text and nesting: at most {@link MAX_VIOLATIONS}. */
export function judge(schema: RecordSchema, parsed: ParsedJson): Violation[] {
	const { json } = parsed;
	const limits = limitViolations(parsed, schema.plan);
	const issues = schema.judge(json);
	if (issues.length === 0 && limits.length === 0) return [];
	return [...violationsOf(issues, json, schema.plan), ...limits].slice(0, MAX_VIOLATIONS);
}

/** Most characters of a path that an error's message repeats. */
const MAX_SHOWN_PATH = 200;

/** @param what has the place of a violation without a path: `the record` */
export function brokenRules(
	violations: readonly Violation[],
	what: string,
	conversationId: string | undefined,
): ServiceError {
	const [first] = violations;
	const path = first?.path.join(".").slice(0, MAX_SHOWN_PATH) || what;
	const place = first === undefined ? "" : ` (first: ${path}: ${first.message})`;
	const count = violations.length === 1 ? "1 rule is" : `${violations.length} rules are`;
	return new ServiceError("invalid_record", `${count} broken${place}`, { violations, conversationId });
}
