import type { JsonValue } from "@bufbuild/protobuf";
import type { Violation } from "../../errors.ts";
import { inspect, MAX_FREE_FORM_DEPTH, MAX_RECORD_DEPTH } from "../json/free-form.ts";
import { type Place, rootPlace, step } from "../plan/place.ts";
import type { MessagePlan } from "../plan/plan.ts";
import { MAX_VIOLATIONS, NOT_FINITE, valueError, violation } from "./violations.ts";

type Path = readonly (string | number)[];

/**
 * Finds what the schema does not look for because it concerns text and nesting everywhere in a record: lone
 * surrogates (RFC 8259, section 8.2), numbers without a finite value in free-form JSON, and free-form JSON of more
 * than {@link MAX_FREE_FORM_DEPTH} levels.
 *
 * @param surrogates whether the text of the record can hold lone surrogates
 */
export function limitViolations(record: JsonValue, plan: MessagePlan, surrogates: boolean): Violation[] {
	const { depth, finite } = inspect(record);
	if (depth > MAX_RECORD_DEPTH)
		return [violation([], valueError(`nested more than ${MAX_RECORD_DEPTH} levels deep`), record, plan)];
	if (depth <= MAX_FREE_FORM_DEPTH && finite && !surrogates) return [];
	const violations: Violation[] = [];
	const report = (path: Path, finding: Parameters<typeof violation>[1]): void => {
		if (violations.length < MAX_VIOLATIONS) violations.push(violation(path, finding, record, plan));
	};
	const visit = (json: JsonValue, place: Place, path: Path): void => {
		const freeForm = place.value === undefined && place.collection === undefined;
		if (typeof json === "string" && !json.isWellFormed()) report(path, NOT_UNICODE);
		if (typeof json === "number" && !Number.isFinite(json) && freeForm) report(path, NOT_FINITE);
		if (typeof json !== "object" || json === null) return;
		if (freeForm && inspect(json).depth > MAX_FREE_FORM_DEPTH) {
			report(path, valueError(`free-form JSON nested more than ${MAX_FREE_FORM_DEPTH} levels deep`));
			return;
		}
		if (Array.isArray(json)) {
			json.forEach((item, index) => {
				visit(item, step(place, json, index), [...path, index]);
			});
			return;
		}
		for (const [name, member] of Object.entries(json)) {
			if (!name.isWellFormed()) report([...path, name.toWellFormed()], NOT_UNICODE);
			visit(member, step(place, json, name), [...path, name]);
		}
	};
	visit(record, rootPlace(plan), []);
	return violations;
}

const NOT_UNICODE = {
	type: "string_unicode",
	message: "Input should be a valid string, unable to parse raw data as a unicode string",
};
