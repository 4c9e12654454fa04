import type { Violation } from "../../errors.ts";
import type { ParsedJson } from "../json/exact-json.ts";
import type { ExactJson } from "../json/json-value.ts";
import { MAX_FREE_FORM_DEPTH, measure } from "../json/measure.ts";
import { childPlace, type Place, rootPlace } from "../plan/place.ts";
import type { MessagePlan } from "../plan/plan.ts";
import { MAX_VIOLATIONS } from "./schema.ts";
import { NOT_FINITE, valueError, violation } from "./violations.ts";

type Path = readonly (string | number)[];

/**
 * Returns the violations of limits that the schema does not check, because they apply everywhere in a record: lone
 * surrogates (RFC 8259, section 8.2), numbers in free-form JSON that are not finite, and free-form JSON of more than
 * {@link MAX_FREE_FORM_DEPTH} levels.
 */
export function limitViolations({ json: record, size, mayHaveSurrogates }: ParsedJson, plan: MessagePlan): Violation[] {
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
